package main

// walOpen are about what Open makes, checks and refuses, and about what Save
// must refuse so that raft starts again.
var walOpen = []Mutant{
	{
		Rule: "storage", Name: "commit index beyond the log is written",
		File: "raftwal/save.go",
		Old:  "	if d.hard.commit > d.last {\n",
		New:  "	if false {\n",
		Pkg:  walPkg, Test: "TestCommitIndexBeyondTheLogIsRefused",
	},
	{
		Rule: "storage", Name: "batch at the commit index is refused",
		File: "raftwal/save.go",
		Old:  "	if d.hard.commit > d.last {\n",
		New:  "	if d.hard.commit >= d.last {\n",
		Pkg:  walPkg, Test: "TestCommitIndexBeyondTheLogIsRefused",
	},
	{
		Rule: "storage", Name: "last batch written again without a check",
		File: "raftwal/recover.go",
		Old:  "reason != \"\" {\n			return s.corrupt(",
		New:  "reason == \"-\" {\n			return s.corrupt(",
		Pkg:  walPkg, Test: "TestSettleChecksWhatItWritesAgain",
	},
	{
		Rule: "storage", Name: "only the head of the last batch checked",
		File: "raftwal/recover.go",
		Old:  "	for b = b[batchHeader:]; len(b) > 0; {\n",
		New:  "	chain = t.chain\n	for b = b[len(b):]; len(b) > 0; {\n",
		Pkg:  walPkg, Test: "TestSettleChecksWhatItWritesAgain",
	},
	{
		Rule: "storage", Name: "log without its segments begins anew",
		File: "raftwal/recover.go",
		Old:  "	case len(l.segments) == 0 && l.marked:\n",
		New:  "	case len(l.segments) == 0 && l.marked && false:\n",
		Pkg:  walPkg, Test: "TestLogWithoutItsSegmentsIsRefused",
	},
	{
		Rule: "storage", Name: "marker before the first segment is durable",
		File: "raftwal/log.go",
		Old:  "	if rec == nil {\n		err = l.begin()\n",
		New:  "	if rec == nil {\n		err = errors.Join(l.putMarker(files), l.begin())\n		files.marked = true\n",
		Pkg:  walPkg, Test: "TestMarkerNeverPrecedesTheFirstSegment",
	},
	{
		Rule: "storage", Name: "marker before what Open has found is settled",
		File: "raftwal/log.go",
		Old:  "		if err := l.settle(); err != nil {\n",
		New:  "		if err := l.putMarker(files); err != nil {\n			return err\n		}\n		files.marked = true\n		if err := l.settle(); err != nil {\n",
		More: []Edit{{
			File: "raftwal/segment.go",
			Old:  "	if err := l.syncDir(); err != nil {\n",
			New:  "	if err := error(nil); err != nil {\n",
		}},
		Pkg: walPkg, Test: "TestMarkerNeverPrecedesTheFirstSegment",
	},
	{
		Rule: "storage", Name: "marker is not durable",
		File: "raftwal/segment.go",
		Old:  "	if err := l.syncDir(); err != nil {\n",
		New:  "	if err := error(nil); err != nil {\n",
		Pkg:  walPkg, Test: "TestLogWithoutMarkerOpens",
	},
	{
		Rule: "storage", Name: "log of an earlier version never gets a marker",
		File: "raftwal/log.go",
		Old:  "	if err := l.putMarker(files); err != nil {\n",
		New:  "	if rec != nil {\n		files.marked = true\n	}\n	if err := l.putMarker(files); err != nil {\n",
		Pkg:  walPkg, Test: "TestLogWithoutMarkerOpens",
	},
	{
		Rule: "storage", Name: "file of more than 32 bits passes for a segment",
		File: "raftwal/segment.go",
		Old:  "	case h.size > math.MaxUint32:\n",
		New:  "	case h.size > math.MaxUint32 && false:\n",
		Pkg:  walPkg, Test: "TestSegmentOfMoreThan32BitsIsRefused",
	},
	{
		Rule: "storage", Name: "segment that is not retired stays open",
		File: "raftwal/compact.go",
		Old:  "errors.Join(err, s.release())",
		New:  "errors.Join(err)",
		Pkg:  walPkg, Test: "TestFailedCompactionClosesItsFile",
	},
	{
		Rule: "storage", Name: "new directory whose name cannot be synced",
		File: "raftwal/fs/os.go",
		Old:  "	if !missing && (",
		New:  "	if (",
		Pkg:  "./raftwal/fs", Test: "TestMakeDirToleratesAParentOfSomebodyElse",
	},
	{
		Rule: "storage", Name: "directory in one that cannot be synced is refused",
		File: "raftwal/fs/os_unix.go",
		Old:  "	return errors.Is(err, syscall.EINVAL) ||",
		New:  "	return false && errors.Is(err, syscall.EINVAL) ||",
		Pkg:  "./raftwal/fs", Test: "TestMakeDirToleratesAParentOfSomebodyElse",
	},
}
