package main

const (
	nodeSim    = "./leaderlease/leasetest"
	simPkg     = "./leaderlease/leasetest/sim"
	changeFile = "leaderlease/leasetest/change.go"
	candidFile = "leaderlease/leasetest/candid.go"
)

// memberships are bugs in what a change of membership asks of an embedder,
// broken in the simulator's node.
var memberships = []Mutant{
	{
		Rule: "membership", Name: "a change is applied before its commit index is on disk", Pkg: nodeSim, Test: "^TestAChangeOutlivesACrash$",
		File: changeFile,
		Old:  "n.Options.ForgetsChanges || n.committed(index) == nil {", New: "n.Options.ForgetsChanges || true {",
	},
	{
		Rule: "membership", Name: "the queue before a change is not awaited", Pkg: nodeSim, Test: "^TestAChangeOutlivesACrash$",
		File: changeFile,
		Old:  "n.Options.ForgetsChanges || n.committed(index) == nil {", New: "n.Options.ForgetsChanges || n.committed(index) == nil || true {",
	},
	{
		Rule: "membership", Name: "nobody learns in an election what is committed", Pkg: nodeSim, Test: "^TestALeaderThatRemovedItselfIsSucceeded$",
		File: "leaderlease/leasetest/node.go",
		Old:  "\tn.learnCommit(m)\n", New: "",
	},
	{
		Rule: "membership", Name: "word of an entry of another term is taken", Pkg: nodeSim, Test: "^TestWordOfAnotherEntryIsNotTaken$",
		File: candidFile,
		Old:  "err != nil || term != m.GetRejectHint() {", New: "err != nil || term == 0 {",
	},
	{
		Rule: "membership", Name: "who says what is committed stays the leader", Pkg: nodeSim, Test: "^TestWordOfAnotherEntryIsNotTaken$",
		File: candidFile,
		Old:  "\tmust(n.raw.ForgetLeader())\n", New: "",
	},
	{
		Rule: "membership", Name: "a change is applied behind a snapshot", Pkg: nodeSim, Test: "^TestAChangeIsNotAppliedBehindASnapshot$/async=true",
		File: "leaderlease/leasetest/apply.go",
		Old:  "if e.GetIndex() <= n.superseded {", New: "if false {",
	},
	{
		Rule: "membership", Name: "a snapshot is stepped before Advance", Pkg: nodeSim, Test: "^TestAChangeIsNotAppliedBehindASnapshot$/async=false",
		File: changeFile,
		Old:  "n.Options.Async || !n.busy {", New: "true {",
	},
	{
		Rule: "membership", Name: "a test's nodes make the same mistake in all their processes", Pkg: simPkg, Test: "^TestMistakesWithReadyMakeNoReadStale$",
		File: "leaderlease/leasetest/mistake.go",
		Old:  "n.Options.Mistake(n.Process())", New: "n.Options.Mistake(n.run)",
	},
}
