package main

const (
	graveFile = "leaderlease/core/death.go"
	deathFile = "leaderlease/death.go"
)

// obituaryRules take V8 out, or a part of it.
var obituaryRules = []Mutant{
	{
		Rule: "V8", Name: "an obituary of any process of the leader's voids the promise", Pkg: rulesPkg, Test: "^TestV8ALateObituaryOfAFormerProcess$",
		File: graveFile,
		Old:  " || p.process != died ||", New: " ||",
	},
	{
		Rule: "V8", Name: "any obituary voids the promise, as the simulator sees it", Pkg: simPkg, Test: "^TestObituaries$",
		File: graveFile,
		Old:  " || p.process != died ||", New: " ||",
	},
	{
		Rule: "V8", Name: "process IDs are compared by their first bytes", Pkg: corePkg, Test: "^TestGuardObituary$",
		File: graveFile,
		Old:  " || p.process != died ||", New: " || p.process[0] != died[0] ||",
	},
	{
		Rule: "V8", Name: "an obituary of any member voids the promise", Pkg: corePkg, Test: "^TestGuardObituary$",
		File: graveFile,
		Old:  "p.leader != leader || ", New: "",
	},
	{
		Rule: "V8", Name: "the dead are forgotten", Pkg: rulesPkg, Test: "^TestV8WhatTheDeadHaveSent$",
		File: graveFile,
		Old:  "\tg.dead.bury(grave{leader, died})\n", New: "",
	},
	{
		Rule: "V8", Name: "one that has died is remembered until the next does", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: graveFile,
		Old:  "\tcopy(d[1:], d[:])\n", New: "",
	},
	{
		Rule: "V8", Name: "the same obituary once more forgets another", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: graveFile,
		Old:  "\tif d.has(g) {\n\t\treturn\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "any member's obituary buries anybody's process", Pkg: corePkg, Test: "^TestTheDeadAreOfOneMember$",
		File: graveFile,
		Old:  "g.dead.bury(grave{leader, died})", New: "g.dead.bury(grave{0, died})",
		More: []Edit{{guardFile, "grave{leader, from}", "grave{0, from}"}},
	},
	{
		Rule: "V8", Name: "the reign of the dead may be promised something", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: graveFile,
		Old:  "\tg.remember(rel)\n", New: "",
	},
	{
		Rule: "V8", Name: "a promise to two processes is the last one's", Pkg: corePkg, Test: "^TestGuardObituary$",
		File: guardFile,
		Old:  "\t\tg.promise.process = ProcessID{} // for good", New: "\t\tg.promise.process = from // for good",
	},
	{
		Rule: "V8", Name: "a promise to two processes is the first one's", Pkg: rulesPkg, Test: "^TestV8APromiseToTwoProcesses$",
		File: guardFile,
		Old:  "\t\tg.promise.process = ProcessID{} // for good", New: "\t\t_ = 0 // for good",
	},
	{
		Rule: "V8", Name: "an obituary lifts the restart hold", Pkg: rulesPkg, Test: "^TestV8TheRestartHoldStays$",
		File: graveFile,
		Old:  "\tp.until, g.owed = 0, 0\n", New: "\tp.until, g.owed, g.hold = 0, 0, 0\n",
	},
	{
		Rule: "V8", Name: "an obituary releases the node's term", Pkg: rulesPkg, Test: "^TestV8AnObituaryNamesThePromisesTerm$",
		File: graveFile,
		Old:  " || p.term < g.term {", New: " {",
		More: []Edit{{graveFile, "rel := Release{Term: p.term, At: Forever}", "rel := Release{Term: max(p.term, g.term), At: Forever}"}},
	},
	{
		Rule: "V8", Name: "what an obituary frees is still owed", Pkg: corePkg, Test: "^TestGuardObituary$",
		File: graveFile,
		Old:  "\tp.until, g.owed = 0, 0\n", New: "\tp.until = 0\n",
	},
	{
		Rule: "V8", Name: "an obituary of nobody's process", Pkg: corePkg, Test: "^TestGuardObituary$",
		File: graveFile,
		Old:  "leader == 0 || died == (ProcessID{}) {", New: "leader == 0 {",
	},
	{
		Rule: "V8", Name: "an obituary of a process that leads no more", Pkg: corePkg, Test: "^TestGuardObituary$",
		File: graveFile,
		Old:  " || p.term < g.term {", New: " {",
	},
	{
		Rule: "V8", Name: "an obituary of a term that raft does not know yet is lost", Pkg: corePkg, Test: "^TestObituaryBeforeRaftKnowsTheTerm$",
		File: graveFile,
		Old:  "p.term < g.term {", New: "p.term != g.term {",
	},
	{
		Rule: "V8", Name: "a probe that was refused counts among those of a promise", Pkg: corePkg, Test: "^TestRefusedProbesAreOfNoProcess$",
		File: guardFile,
		Old:  "\tif p.Sent <= 0 ||", New: "\tif from != g.promise.process {\n\t\tg.promise.process = ProcessID{}\n\t}\n\tif p.Sent <= 0 ||",
	},
	{
		Rule: "V8", Name: "nobody is told which process a heartbeat is of", Pkg: libPkg, Test: "^TestObituaryMakesTheMessage$",
		File: "leaderlease/inbound.go",
		Old:  "\t\tl.promise(m, from)\n", New: "\t\tl.promise(m, ProcessID{})\n",
	},
	{
		Rule: "V8", Name: "a wrapped Node forgets the process of a message", Pkg: libPkg, Test: "^TestAWrappedNodeLearnsTheProcess$",
		File: "leaderlease/wrap.go",
		Old:  "\t\tif !n.lease.Incoming(m, from) {\n", New: "\t\tif from = (ProcessID{}); !n.lease.Incoming(m, from) {\n",
	},
	{
		Rule: "V8", Name: "who is bound by its restart is told to campaign", Pkg: libPkg, Test: "^TestObituaryInTheHold$",
		File: deathFile,
		Old:  "\tif l.mu.guard.Bound(now) {\n\t\treturn nil, false\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "an obituary after Close", Pkg: libPkg, Test: "^TestObituaryThatVoidsNothing$",
		File: deathFile,
		Old:  "\tif l.mu.closed {\n\t\treturn nil, false\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "an obituary carries no release", Pkg: libPkg, Test: "^TestObituaryMakesTheMessage$",
		File: deathFile,
		Old:  "\tattachRelease(m, rel)\n", New: "",
	},
	{
		Rule: "V8", Name: "an obituary's message does not say what it is", Pkg: libPkg, Test: "^TestObituaryMakesTheMessage$",
		File: deathFile,
		Old:  "\tvotes.MarkObituary(m)\n", New: "\t_ = votes.MarkObituary\n",
	},
	{
		Rule: "V8", Name: "forced votes do not pass an obituary on", Pkg: rulesPkg, Test: "^TestV8AnObituaryVoidsThePromise$",
		File: graveFile,
		Old:  "\tg.remember(rel)\n", New: "",
		More: []Edit{{deathFile, "\tattachRelease(m, rel)\n", ""}},
	},
	{
		Rule: "V8", Name: "a member waits until the dead are silent", Pkg: detectorPkg, Test: "^TestAnObituaryIsActedUponAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.hint.way == Obituary || now.", New: "return now.",
	},
	{
		Rule: "V8", Name: "after an obituary members ask for pre-votes", Pkg: detectorPkg, Test: "^TestAnObituaryIsActedUponAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "do.Force = d.forces(k)", New: "do.Force = false",
	},
	{
		Rule: "V8", Name: "members stand by force again and again", Pkg: detectorPkg, Test: "^TestAnObituaryIsActedUponAtOnce$",
		File: "leaderlease/detector/obituary.go",
		Old:  "d.hint.turn == 0 && ", New: "",
	},
	{
		Rule: "V8", Name: "what the dead have sent is a sign of life", Pkg: detectorPkg, Test: "^TestWhatEndsAnObituary$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.hint.way == Obituary && term <= d.hint.term {", New: "if false {",
	},
	{
		Rule: "V8", Name: "what the dead have sent ends the turns", Pkg: rulesPkg, Test: "^TestV8WhatTheDeadHaveSentEndsNoTurn$",
		File: "leaderlease/detector/detector.go",
		Old:  "if leader == d.leader && d.hint.way == Obituary {", New: "if false {",
	},
	{
		Rule: "V8", Name: "the next process of the dead is taken for dead", Pkg: detectorPkg, Test: "^TestTheNextProcessLeads$",
		File: "leaderlease/detector/detector.go",
		Old:  "&& term <= d.hint.term {", New: "&& term <= d.hint.term+1 {",
	},
	{
		Rule: "V8", Name: "a fail-over whose first turn was in vain is called a transfer", Pkg: detectorPkg, Test: "^TestTheFirstTurnIsInVain$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.hint.way == Obituary { // of which", New: "if false { // of which",
	},
	{
		Rule: "V8", Name: "nothing ends an obituary", Pkg: detectorPkg, Test: "^TestWhatEndsAnObituary$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.hint.way == Obituary && term <= d.hint.term {", New: "if d.hint.way == Obituary {",
	},
	{
		Rule: "V8", Name: "the message of an obituary is called a transfer", Pkg: detectorPkg, Test: "^TestAnObituaryIsNobodysWish$",
		File: "leaderlease/detector/detector.go",
		Old:  "if votes.OfObituary(m) {", New: "if votes.OfObituary(nil) {",
	},
	{
		Rule: "V8", Name: "an obituary is lost where its connections have ended first", Pkg: detectorPkg, Test: "^TestAnObituaryIsActedUponAtOnce$",
		File: "leaderlease/detector/obituary.go",
		Old:  "d.cfg.Self || d.hint.way == Obituary {", New: "d.cfg.Self || d.hint.way != Silence {",
	},
	{
		Rule: "V8", Name: "who stands by an obituary waits for those who hold", Pkg: rulesPkg, Test: "^TestV8VotersThatHoldMissTheRequest$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.rival || d.hint.forced", New: "return d.rival",
	},
	{
		Rule: "V8", Name: "who stood by an obituary gives up each election", Pkg: detectorPkg, Test: "^TestWhoStandsByAnObituaryStandsAnewOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "h.turn, h.forced = turn+1, do.Force", New: "h.turn, h.forced = turn+1, h.forced || do.Force",
	},
	{
		Rule: "V8", Name: "an alarm before an obituary was false", Pkg: detectorPkg, Test: "^TestTheAlarmBeforeAnObituaryWasNotFalse$",
		File: "leaderlease/detector/obituary.go",
		Old:  "\td.learnt.convicts(peer)\n", New: "",
	},
	{
		Rule: "V8", Name: "the next turn is as short as one with pre-votes", Pkg: rulesPkg, Test: "^TestV8TheNextTurnWaitsForTheFirstOnesDisk$",
		File: "leaderlease/detector/obituary.go",
		Old:  "return 2 * d.cfg.Turn", New: "return d.cfg.Turn",
	},
}

const resignFile = "leaderlease/resign.go"

// releasesAndCloses is how resigning gives the lease up.
const releasesAndCloses = "\tl.releaseLocked(m, now)\n\treturn m, l.closeLocked(now) // published before anybody has m (L7)\n"

// resignRules take L6b out, or a part of it.
var resignRules = []Mutant{
	{
		Rule: "L6b", Name: "a resignation leaves before it is published", Pkg: rulesPkg, Test: "^TestL6ResignationIsPublishedBeforeItLeaves$",
		File: resignFile, Sim: true, Trace: true,
		Old: releasesAndCloses, New: "\tl.releaseLocked(m, now)\n\tl.mu.closed = true\n\tl.mu.lease.Close()\n\treturn m, nil\n",
	},
	{
		Rule: "L6b", Name: "who resigns keeps its lease", Pkg: rulesPkg, Test: "^TestL6ResignationHandsThePromisesBack$",
		File: resignFile, Sim: true,
		Old: releasesAndCloses, New: "\tattachRelease(m, core.Release{Term: term, At: now})\n\treturn m, nil\n",
		More: []Edit{importsCore},
	},
	{
		Rule: "L6b", Name: "who has resigned leads on", Pkg: rulesPkg, Test: "^TestL6WhoHasResignedNeverServesAgain$",
		File: resignFile,
		Old:  "\treturn m, l.closeLocked(now) // published", New: "\treturn m, l.publishLocked(now) // published",
	},
	{
		Rule: "L6b", Name: "who does not lead resigns", Pkg: rulesPkg, Test: "^TestL6WhoDoesNotLeadCannotResign$",
		File: resignFile, Sim: true,
		Old: "\tif term == 0 {\n\t\treturn nil, nil\n\t}\n", New: "",
	},
	{
		Rule: "L6b", Name: "who has stepped down resigns for its node's term", Pkg: rulesPkg, Test: "^TestL6WhoHasSteppedDownCannotResign$",
		File: resignFile, Sim: true,
		Old:  "\tterm := l.mu.lease.Term()\n",
		New:  "\tterm := l.mu.term\n",
		More: []Edit{{resignFile, "\tl.releaseLocked(m, now)\n", "\tl.mu.lease.Invalidate(now)\n\tattachRelease(m, core.Release{Term: term, At: now})\n"}, importsCore},
	},
	{
		Rule: "L6b", Name: "a resignation names the newest term that the node knows", Pkg: libPkg, Test: "^TestResignNamesTheReignsTerm$",
		File: resignFile,
		Old:  "\tnow := l.nowLocked()\n",
		New:  "\tnow := l.nowLocked()\n\tterm = max(term, l.mu.guard.Info(now).Term)\n",
		More: []Edit{{resignFile, "\tl.releaseLocked(m, now)\n", "\tl.mu.lease.Invalidate(now)\n\tattachRelease(m, core.Release{Term: term, At: now})\n"}, importsCore},
	},
	{
		Rule: "L6b", Name: "a resignation releases for ever", Pkg: rulesPkg, Test: "^TestL6ResignationIsPublishedBeforeItLeaves$",
		File: resignFile,
		Old:  "\tl.releaseLocked(m, now)\n", New: "\tl.mu.lease.Release(now)\n\tattachRelease(m, core.Release{Term: term, At: core.Forever})\n",
		More: []Edit{importsCore},
	},
}

// importsCore is what a planted bug of resignFile needs that makes a release itself.
var importsCore = Edit{resignFile, "\t\"github.com/leaderlease/go/leaderlease/internal/votes\"\n", "\t\"github.com/leaderlease/go/leaderlease/core\"\n\t\"github.com/leaderlease/go/leaderlease/internal/votes\"\n"}
