package main

const (
	reserveFile = "raftwal/rotate.go"
	walPkg      = "./raftwal"
	freedTest   = "TestFullDiskIsFreedByCompaction"
	usedUpTest  = "TestNothingUsesTheReserveUp"
)

// walFull take a full disk the way to compaction.
var walFull = []Mutant{
	{
		Rule: "storage", Name: "entries use what compaction needs on a full disk",
		File: reserveFile,
		Old:  "	case useBulk:\n		return all\n",
		New:  "	case useBulk:\n		return 0\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "votes use what compaction needs on a full disk",
		File: reserveFile,
		Old:  "		return all * 6 / 8\n",
		New:  "		return 0\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "votes use what Flush needs on a full disk",
		File: reserveFile,
		Old:  "		return all * 6 / 8\n",
		New:  "		return all * 5 / 8\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "Flush has no share of the reserve",
		File: "raftwal/save.go",
		Old:  "	b.use = u\n",
		New:  "	_ = u\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "Flush uses what a checkpoint needs on a full disk",
		File: reserveFile,
		Old:  "		return all * 5 / 8\n",
		New:  "		return 0\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "Flush that helps to free nothing uses its share",
		File: "raftwal/save.go",
		Old:  "l.useFor(useFlush, l.mu.view.hard.commit)",
		New:  "useFlush",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "checkpoint uses what compaction needs on a full disk",
		File: reserveFile,
		Old:  "		return compactSize\n",
		New:  "		return 0\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "checkpoints that free nothing use the reserve",
		File: "raftwal/compact.go",
		Old:  "	b.use = l.useFor(useSnapshot, snap.GetMetadata().GetIndex())\n",
		New:  "	b.use = useSnapshot\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "compaction that frees nothing uses the reserve",
		File: "raftwal/compact.go",
		Old:  "	b.use = l.useFor(useCompact, index)\n",
		New:  "	b.use = useCompact\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "what an installed snapshot has replaced is no room",
		File: "raftwal/rotate.go",
		Old:  "	if w.seg != nil {\n		// Segments",
		New:  "	if false {\n		// Segments",
		Pkg:  walPkg, Test: "TestInstalledSnapshotFreesAFullDisk",
	},
	{
		Rule: "storage", Name: "full disk in Open has no type",
		File: "raftwal/recover.go",
		Old:  "	if fs.IsNoSpace(err) {\n		return &NoSpaceError{Cause: err}\n",
		New:  "	if fs.IsNoSpace(err) {\n		return err\n",
		Pkg:  walPkg, Test: "TestOpenOnAFullDiskSaysSo",
	},
	{
		Rule: "storage", Name: "no room for the marker keeps the log shut",
		File: "raftwal/segment.go",
		Old:  "	if fs.IsNoSpace(err) {\n",
		New:  "	if false && fs.IsNoSpace(err) {\n",
		Pkg:  walPkg, Test: "TestNoRoomForTheMarker",
	},
}
