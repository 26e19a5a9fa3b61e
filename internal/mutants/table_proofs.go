package main

const (
	raftsimPkg = "./internal/raftsim"
	proofFile  = "leaderlease/recovercommit.go"
	diskFile   = "leaderlease/leasetest/disk.go"
)

// proofs are bugs in the commit index that a log proves, and in the simulator that has
// to find them.
var proofs = []Mutant{
	{
		Rule: "proof", Name: "a log that holds two changes proves nothing", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: proofFile, Sim: true,
		Old: "\t\t\tproven = change\n", New: "\t\t\tproven = min(change, 0)\n",
	},
	{
		Rule: "proof", Name: "a log that holds two changes proves nothing to bare RawNodes", Pkg: raftsimPkg, Test: "^TestTornChangesElectASecondLeader$",
		File: proofFile,
		Old:  "\t\t\tproven = change\n", New: "\t\t\tproven = min(change, 0)\n",
	},
	{
		Rule: "proof", Name: "a change in the log proves itself", Pkg: raftsimPkg, Test: "^TestSafety$",
		File: proofFile, Sim: true,
		Old: "\t\t\tproven = change\n", New: "\t\t\tproven = max(change, e.GetIndex())\n",
	},
	{
		Rule: "proof", Name: "a disk of the simulator does not tear", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: diskFile,
		Old:  "\tif d.kind == AtomicBatches {\n", New: "\tif d.kind <= AtomicBatches {\n",
	},
	{
		Rule: "proof", Name: "a disk of the simulator syncs each commit index", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: diskFile,
		Old:  "if raft.MustSync(hard, d.durable, len(entries)) {", New: "if true {",
	},
	{
		Rule: "proof", Name: "a node of the simulator goes by its hard state alone", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: "leaderlease/leasetest/checkpoint.go",
		Old:  "\tif n.Options.HardStateAlone {\n", New: "\tif n.Options.HardStateAlone || true {\n",
	},
}
