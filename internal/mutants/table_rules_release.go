package main

const releaseFile = "leaderlease/release.go"

// deathRules take V8 out, or a part of it.
var deathRules = []Mutant{
	{
		Rule: "V8", Name: "a death notice of any process of the leader's member voids the promise", Pkg: rulesPkg, Test: "^TestV8ALateDeathNoticeOfAnEarlierProcess$",
		File: guardFile,
		Old:  " || p.process != died ||", New: " ||",
	},
	{
		Rule: "V8", Name: "a death notice of any member voids the promise", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  "p.leader != leader || ", New: "",
	},
	{
		Rule: "V8", Name: "a process that has died is forgotten", Pkg: rulesPkg, Test: "^TestV8LateHeartbeatsOfADeadProcess$",
		File: guardFile,
		Old:  "\tg.dead.add(deadProcess{leader, died})\n", New: "",
	},
	{
		Rule: "V8", Name: "a process that has died is remembered until the next one dies", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: guardFile,
		Old:  "\tcopy(d[1:], d[:])\n", New: "",
	},
	{
		Rule: "V8", Name: "a repeated death notice replaces another", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: guardFile,
		Old:  "\tif d.has(p) {\n\t\treturn\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "a death notice of any member voids promises to any process", Pkg: corePkg, Test: "^TestTheDeadAreOfOneMember$",
		File: guardFile,
		Old:  "g.dead.add(deadProcess{leader, died})", New: "g.dead.add(deadProcess{0, died})",
		More: []Edit{{guardFile, "deadProcess{leader, from}", "deadProcess{0, from}"}},
	},
	{
		Rule: "V8", Name: "promises to the term of a process that has died are made again", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: guardFile,
		Old:  "\tg.remember(rel)\n", New: "",
	},
	{
		Rule: "V8", Name: "a promise to two processes belongs to the first", Pkg: rulesPkg, Test: "^TestV8APromiseToTwoProcesses$",
		File: guardFile,
		Old:  "\t\tg.promise.process = ProcessID{} // for the rest", New: "\t\t_ = 0 // for the rest",
	},
	{
		Rule: "V8", Name: "a death notice ends the restart hold", Pkg: rulesPkg, Test: "^TestV8TheRestartHoldStays$",
		File: guardFile,
		Old:  "\tp.until, g.owed = 0, 0\n", New: "\tp.until, g.owed, g.holdUntil = 0, 0, 0\n",
	},
	{
		Rule: "V8", Name: "a death notice releases the node's term", Pkg: rulesPkg, Test: "^TestV8ADeathNoticeNamesThePromisesTerm$",
		File: guardFile,
		Old:  " || p.term < g.term {", New: " {",
		More: []Edit{{guardFile, "rel := Release{Term: p.term, At: Forever}", "rel := Release{Term: max(p.term, g.term), At: Forever}"}},
	},
	{
		Rule: "V8", Name: "a promise that a death notice voids still holds Ready back", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  "\tp.until, g.owed = 0, 0\n", New: "\tp.until = 0\n",
	},
	{
		Rule: "V8", Name: "a death notice without a process is accepted", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  "leader == 0 || died == (ProcessID{}) {", New: "leader == 0 {",
	},
	{
		Rule: "V8", Name: "a death notice of a process that no longer leads is accepted", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  " || p.term < g.term {", New: " {",
	},
	{
		Rule: "V8", Name: "a death notice for a term that raft does not know yet is lost", Pkg: corePkg, Test: "^TestDeathBeforeRaftKnowsTheTerm$",
		File: guardFile,
		Old:  "p.term < g.term {", New: "p.term != g.term {",
	},
	{
		Rule: "V8", Name: "a refused probe changes the process of a promise", Pkg: corePkg, Test: "^TestRefusedProbesAreOfNoProcess$",
		File: guardFile,
		Old:  "\tif p.Sent <= 0 ||", New: "\tif from != g.promise.process {\n\t\tg.promise.process = ProcessID{}\n\t}\n\tif p.Sent <= 0 ||",
	},
	{
		Rule: "V8", Name: "the process of a heartbeat is not passed on", Pkg: libPkg, Test: "^TestProcessDiedMakesTheMessage$",
		File: "leaderlease/inbound.go",
		Old:  "\t\tl.promise(m, from)\n", New: "\t\tl.promise(m, ProcessID{})\n",
	},
	{
		Rule: "V8", Name: "a member in its restart hold is asked to campaign", Pkg: libPkg, Test: "^TestProcessDiedInTheHold$",
		File: releaseFile,
		Old:  "\tif l.mu.guard.Bound(now) {\n\t\treturn nil, false\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "a death notice after Close is accepted", Pkg: libPkg, Test: "^TestProcessDiedThatVoidsNothing$",
		File: releaseFile,
		Old:  "\tif l.mu.closed {\n\t\treturn nil, false\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "the message of a death notice is not marked", Pkg: libPkg, Test: "^TestProcessDiedMakesTheMessage$",
		File: releaseFile,
		Old:  "\tcore.MarkProcessDied(m)\n", New: "\t_ = core.MarkProcessDied\n",
	},
	{
		Rule: "V8", Name: "forced votes do not carry the release of a death notice", Pkg: rulesPkg, Test: "^TestV8ADeathNoticeVoidsThePromise$",
		File: guardFile,
		Old:  "\tg.remember(rel)\n", New: "",
		More: []Edit{{releaseFile, "\tattachRelease(m, rel)\n", ""}},
	},
}

// releasesAndCloses is how resigning gives the lease up.
const releasesAndCloses = "\tl.releaseLocked(m, now)\n\treturn m, l.closeLocked(now) // published before m is returned (L7)\n"

// resignRules take L6b out, or a part of it.
var resignRules = []Mutant{
	{
		Rule: "L6b", Name: "a resignation leaves before it is published", Pkg: rulesPkg, Test: "^TestL6ResignationIsPublishedBeforeItLeaves$",
		File: releaseFile, Sim: true, Trace: true,
		Old: releasesAndCloses, New: "\tl.releaseLocked(m, now)\n\tl.mu.closed = true\n\tl.mu.lease.Close()\n\treturn m, nil\n",
	},
	{
		Rule: "L6b", Name: "a leader that resigns keeps its lease", Pkg: rulesPkg, Test: "^TestL6ResignationHandsThePromisesBack$",
		File: releaseFile, Sim: true,
		Old: releasesAndCloses, New: "\tattachRelease(m, core.Release{Term: term, At: now})\n\treturn m, nil\n",
	},
	{
		Rule: "L6b", Name: "a leader that has resigned keeps its term", Pkg: rulesPkg, Test: "^TestL6AResignedMemberNeverServesAgain$",
		File: releaseFile,
		Old:  "\treturn m, l.closeLocked(now) // published", New: "\treturn m, l.publishLocked(now) // published",
	},
	{
		Rule: "L6b", Name: "a follower resigns", Pkg: rulesPkg, Test: "^TestL6AFollowerCannotResign$",
		File: releaseFile, Sim: true,
		Old: "\tif term == 0 {\n\t\treturn nil, nil\n\t}\n", New: "",
	},
	{
		Rule: "L6b", Name: "a former leader resigns for its node's term", Pkg: rulesPkg, Test: "^TestL6AFormerLeaderCannotResign$",
		File: releaseFile, Sim: true,
		Old:  "\tterm := l.mu.lease.Term()\n",
		New:  "\tterm := l.mu.term\n",
		More: []Edit{{releaseFile, "\tl.releaseLocked(m, now)\n", "\tl.mu.lease.Invalidate(now)\n\tattachRelease(m, core.Release{Term: term, At: now})\n"}},
	},
	{
		Rule: "L6b", Name: "Resign waits for the lock without a limit", Pkg: libPkg, Test: "^TestResignDoesNotWaitForLong$",
		File: releaseFile,
		Old:  ">= lockPatience {", New: ">= time.Hour {",
	},
	{
		Rule: "L6b", Name: "a closed lease does not resign", Pkg: libPkg, Test: "^TestResignAfterClose$",
		File: releaseFile,
		Old:  "\tif term == 0 {", New: "\tif term == 0 || l.mu.closed {",
	},
}
