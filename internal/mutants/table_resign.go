package main

// resignations are bugs of how a member that ends hands its promises back.
var resignations = []Mutant{
	{
		Rule: "resignation", Name: "a process that dies hangs with who holds the lock", Pkg: libPkg, Test: "^TestResignDoesNotWaitForLong$",
		File: resignFile,
		Old:  ">= lockPatience {", New: ">= time.Hour {",
	},
	{
		Rule: "resignation", Name: "who is closed has nothing to hand back", Pkg: libPkg, Test: "^TestResignAfterClose$",
		File: resignFile,
		Old:  "\tif term == 0 {", New: "\tif term == 0 || l.mu.closed {",
	},
	{
		Rule: "resignation", Name: "a member stands against whom the leader has named", Pkg: "./leaderlease/detector", Test: "^TestTheTransfereeIsLeftAlone$",
		File: "leaderlease/detector/detector.go",
		Old:  "\t\td.noteVoteRequest(m.GetTerm(), term)\n", New: "\t\tif !core.IsForcedVote(m) {\n\t\t\td.noteVoteRequest(m.GetTerm(), term)\n\t\t}\n",
	},
	{
		Rule: "resignation", Name: "who has refused its vote to whom the leader has named leaves it its time", Pkg: "./leaderlease/detector", Test: "^TestTheTransfereeIsLeftAlone$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.transferAt, d.deferUntil, d.suspicion = time.Time{}, 0, ", New: "d.transferAt, d.suspicion = time.Time{}, ",
	},
	{
		Rule: "resignation", Name: "who refuses its vote to whom the leader has named waits all the same", Pkg: rulesPkg, Test: "^TestL6ResignationToAShorterLog$",
		File: "leaderlease/detector/detector.go",
		Old:  "\tif !d.transferAt.IsZero() {\n", New: "\tif d.transferAt.IsZero() {\n",
	},
	{
		Rule: "resignation", Name: "a resignation is called a transfer", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "if core.IsResignation(m) {", New: "if core.IsResignation(nil) {",
	},
	{
		Rule: "resignation", Name: "a resignation is not marked", Pkg: nodePkg, Test: "^TestALeaderThatEndsByItselfResigns$",
		File: resignFile,
		Old:  "\tcore.MarkResignation(m)\n", New: "\t_ = core.MarkResignation\n",
	},
}
