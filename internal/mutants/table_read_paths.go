package main

// readPaths are bugs of lease reads that tests of kvnode find, or that concern reads of followers.
var readPaths = []Mutant{
	{
		Rule: "reads", Name: "an answer to a follower's read waits for its raft loop", Pkg: nodePkg, Test: "^TestAForwardedReadTakesNoTurnOfALoop$",
		File: "leaderlease/inbound.go",
		Old:  "	case err == nil && (byRound || !quorum):\n		return !l.answerWaiting(m)\n", New: "	case err == nil && (byRound || !quorum):\n		return true\n",
	},
	{
		Rule: "reads", Name: "a term is kept away from raft that it may learn from an answer", Pkg: libPkg, Test: "^TestAnswersAreTakenWhereTheyArrive$",
		File: "leaderlease/inbound.go",
		Old:  "&& m.GetTerm() == l.mu.term && len", New: "&& len",
	},
	{
		Rule: "reads", Name: "an answer reaches one that does not follow", Pkg: libPkg, Test: "^TestAnswersAreTakenWhereTheyArrive$",
		File: "leaderlease/inbound.go",
		Old:  "mine := l.mu.role == raft.StateFollower && ", New: "mine := ",
	},
	{
		Rule: "reads", Name: "a read under the lease does not wait until what it must see is applied", Pkg: nodePkg, Test: "^TestSeeds$",
		File: "leaderlease/read.go",
		Old:  "if l.applied.Load() < index {\n\t\treturn ReadResult{}, false", New: "if false {\n\t\treturn ReadResult{}, false",
	},
	{
		Rule: "reads", Name: "a lease serves reads when it has expired", Pkg: nodePkg, Test: "^TestSeeds$",
		File: "leaderlease/read.go",
		Old:  "\tif s != core.Valid {\n\t\treturn ReadResult{}, false\n\t}\n\tindex", New: "\tif s != core.Valid && s != core.Expired {\n\t\treturn ReadResult{}, false\n\t}\n\tindex",
	},
}
