package main

const (
	deathFile = "leaderlease/release.go"
)

// obituaryRules take V8 out, or a part of it.
var obituaryRules = []Mutant{
	{
		Rule: "V8", Name: "an obituary of any process of the leader's voids the promise", Pkg: rulesPkg, Test: "^TestV8ALateDeathNoticeOfAnEarlierProcess$",
		File: guardFile,
		Old:  " || p.process != died ||", New: " ||",
	},
	{
		Rule: "V8", Name: "any obituary voids the promise, as the simulator sees it", Pkg: simPkg, Test: "^TestDeathNotices$",
		File: guardFile,
		Old:  " || p.process != died ||", New: " ||",
	},
	{
		Rule: "V8", Name: "process IDs are compared by their first bytes", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  " || p.process != died ||", New: " || p.process[0] != died[0] ||",
	},
	{
		Rule: "V8", Name: "an obituary of any member voids the promise", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  "p.leader != leader || ", New: "",
	},
	{
		Rule: "V8", Name: "the dead are forgotten", Pkg: rulesPkg, Test: "^TestV8LateHeartbeatsOfADeadProcess$",
		File: guardFile,
		Old:  "\tg.dead.add(deadProcess{leader, died})\n", New: "",
	},
	{
		Rule: "V8", Name: "one that has died is remembered until the next does", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: guardFile,
		Old:  "\tcopy(d[1:], d[:])\n", New: "",
	},
	{
		Rule: "V8", Name: "the same obituary once more forgets another", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
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
		Rule: "V8", Name: "the reign of the dead may be promised something", Pkg: corePkg, Test: "^TestTheDeadArePromisedNothing$",
		File: guardFile,
		Old:  "\tg.remember(rel)\n", New: "",
	},
	{
		Rule: "V8", Name: "a promise to two processes is the last one's", Pkg: corePkg, Test: "^TestGuardProcessDied$",
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
		File: guardFile,
		Old:  "\tp.until, g.owed = 0, 0\n", New: "\tp.until, g.owed, g.hold = 0, 0, 0\n",
	},
	{
		Rule: "V8", Name: "an obituary releases the node's term", Pkg: rulesPkg, Test: "^TestV8ADeathNoticeNamesThePromisesTerm$",
		File: guardFile,
		Old:  " || p.term < g.term {", New: " {",
		More: []Edit{{guardFile, "rel := Release{Term: p.term, At: Forever}", "rel := Release{Term: max(p.term, g.term), At: Forever}"}},
	},
	{
		Rule: "V8", Name: "what an obituary frees is still owed", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  "\tp.until, g.owed = 0, 0\n", New: "\tp.until = 0\n",
	},
	{
		Rule: "V8", Name: "a death notice without a process", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  "leader == 0 || died == (ProcessID{}) {", New: "leader == 0 {",
	},
	{
		Rule: "V8", Name: "an obituary of a process that leads no more", Pkg: corePkg, Test: "^TestGuardProcessDied$",
		File: guardFile,
		Old:  " || p.term < g.term {", New: " {",
	},
	{
		Rule: "V8", Name: "an obituary of a term that raft does not know yet is lost", Pkg: corePkg, Test: "^TestDeathBeforeRaftKnowsTheTerm$",
		File: guardFile,
		Old:  "p.term < g.term {", New: "p.term != g.term {",
	},
	{
		Rule: "V8", Name: "a probe that was refused counts among those of a promise", Pkg: corePkg, Test: "^TestRefusedProbesAreOfNoProcess$",
		File: guardFile,
		Old:  "\tif p.Sent <= 0 ||", New: "\tif from != g.promise.process {\n\t\tg.promise.process = ProcessID{}\n\t}\n\tif p.Sent <= 0 ||",
	},
	{
		Rule: "V8", Name: "the process of a heartbeat is not passed on", Pkg: libPkg, Test: "^TestProcessDiedMakesTheMessage$",
		File: "leaderlease/inbound.go",
		Old:  "\t\tl.promise(m, from)\n", New: "\t\tl.promise(m, ProcessID{})\n",
	},
	{
		Rule: "V8", Name: "a wrapped Node forgets the process of a message", Pkg: libPkg, Test: "^TestAWrappedNodeLearnsTheProcess$",
		File: "leaderlease/wrap.go",
		Old:  "\t\tif !n.lease.Incoming(m, from) {\n", New: "\t\tif from = (ProcessID{}); !n.lease.Incoming(m, from) {\n",
	},
	{
		Rule: "V8", Name: "a member in its restart hold is asked to campaign", Pkg: libPkg, Test: "^TestProcessDiedInTheHold$",
		File: deathFile,
		Old:  "\tif l.mu.guard.Bound(now) {\n\t\treturn nil, false\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "an obituary after Close", Pkg: libPkg, Test: "^TestProcessDiedThatVoidsNothing$",
		File: deathFile,
		Old:  "\tif l.mu.closed {\n\t\treturn nil, false\n\t}\n", New: "",
	},
	{
		Rule: "V8", Name: "an obituary carries no release", Pkg: libPkg, Test: "^TestProcessDiedMakesTheMessage$",
		File: deathFile,
		Old:  "\tattachRelease(m, rel)\n", New: "",
	},
	{
		Rule: "V8", Name: "an obituary's message does not say what it is", Pkg: libPkg, Test: "^TestProcessDiedMakesTheMessage$",
		File: deathFile,
		Old:  "\tcore.MarkProcessDied(m)\n", New: "\t_ = core.MarkProcessDied\n",
	},
	{
		Rule: "V8", Name: "forced votes do not pass an obituary on", Pkg: rulesPkg, Test: "^TestV8ADeathNoticeVoidsThePromise$",
		File: guardFile,
		Old:  "\tg.remember(rel)\n", New: "",
		More: []Edit{{deathFile, "\tattachRelease(m, rel)\n", ""}},
	},
	{
		Rule: "V8", Name: "a member waits until the dead are silent", Pkg: detectorPkg, Test: "^TestADeathIsActedUponAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.suspicion.way == ProcessDied || now.", New: "return now.",
	},
	{
		Rule: "V8", Name: "after an obituary members ask for pre-votes", Pkg: detectorPkg, Test: "^TestADeathIsActedUponAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "do.Force = d.mustForce(k)", New: "do.Force = false",
	},
	{
		Rule: "V8", Name: "members stand by force again and again", Pkg: detectorPkg, Test: "^TestADeathIsActedUponAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.suspicion.slot == 0 && ", New: "",
	},
	{
		Rule: "V8", Name: "what the dead have sent is a sign of life", Pkg: detectorPkg, Test: "^TestWhatEndsTheSuspicionOfADeath$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.suspicion.way == ProcessDied && term <= d.suspicion.term {", New: "if false {",
	},
	{
		Rule: "V8", Name: "what the dead have sent ends the turns", Pkg: rulesPkg, Test: "^TestV8LateHeartbeatsEndNoTurn$",
		File: "leaderlease/detector/detector.go",
		Old:  "if leader == d.leader && d.suspicion.way == ProcessDied {", New: "if false {",
	},
	{
		Rule: "V8", Name: "the next process of the dead is taken for dead", Pkg: detectorPkg, Test: "^TestTheNextProcessLeads$",
		File: "leaderlease/detector/detector.go",
		Old:  "&& term <= d.suspicion.term {", New: "&& term <= d.suspicion.term+1 {",
	},
	{
		Rule: "V8", Name: "a fail-over whose first turn was in vain is called a transfer", Pkg: detectorPkg, Test: "^TestTheFirstSlotIsInVain$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.suspicion.way == ProcessDied { // the candidate", New: "if false { // of which",
	},
	{
		Rule: "V8", Name: "nothing ends an obituary", Pkg: detectorPkg, Test: "^TestWhatEndsTheSuspicionOfADeath$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.suspicion.way == ProcessDied && term <= d.suspicion.term {", New: "if d.suspicion.way == ProcessDied {",
	},
	{
		Rule: "V8", Name: "the message of an obituary is called a transfer", Pkg: detectorPkg, Test: "^TestADeathIsNoTransfer$",
		File: "leaderlease/detector/detector.go",
		Old:  "if core.IsProcessDied(m) {", New: "if core.IsProcessDied(nil) {",
	},
	{
		Rule: "V8", Name: "an obituary is lost where its connections have ended first", Pkg: detectorPkg, Test: "^TestADeathIsActedUponAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.cfg.Self || d.suspicion.way == ProcessDied {", New: "d.cfg.Self || d.suspicion.way != Silence {",
	},
	{
		Rule: "V8", Name: "a candidate after a death notice waits for members in a hold", Pkg: rulesPkg, Test: "^TestV8VotersThatHoldMissTheRequest$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.rival || d.suspicion.forced", New: "return d.rival",
	},
	{
		Rule: "V8", Name: "a candidate after a death notice gives up each election", Pkg: detectorPkg, Test: "^TestAForcedCampaignIsRepeatedOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "s.slot, s.forced = slot+1, do.Force", New: "s.slot, s.forced = slot+1, s.forced || do.Force",
	},
	{
		Rule: "V8", Name: "an alarm before an obituary was false", Pkg: detectorPkg, Test: "^TestTheSuspicionBeforeADeathWasNotFalse$",
		File: "leaderlease/detector/detector.go",
		Old:  "\td.adaptive.confirm(peer)\n", New: "",
	},
	{
		Rule: "V8", Name: "the next turn is as short as one with pre-votes", Pkg: rulesPkg, Test: "^TestV8TheNextTurnWaitsForTheFirstOnesDisk$",
		File: "leaderlease/detector/detector.go",
		Old:  "return 2 * d.cfg.Slot", New: "return d.cfg.Slot",
	},
}

const resignFile = "leaderlease/release.go"

// releasesAndCloses is how resigning gives the lease up.
const releasesAndCloses = "\tl.releaseLocked(m, now)\n\treturn m, l.closeLocked(now) // published before m is returned (L7)\n"

// resignRules take L6b out, or a part of it.
var resignRules = []Mutant{
	{
		Rule: "L6b", Name: "a resignation leaves before it is published", Pkg: rulesPkg, Test: "^TestL6ResignationIsPublishedBeforeItLeaves$",
		File: resignFile, Sim: true, Trace: true,
		Old: releasesAndCloses, New: "\tl.releaseLocked(m, now)\n\tl.mu.closed = true\n\tl.mu.lease.Close()\n\treturn m, nil\n",
	},
	{
		Rule: "L6b", Name: "a leader that resigns keeps its lease", Pkg: rulesPkg, Test: "^TestL6ResignationHandsThePromisesBack$",
		File: resignFile, Sim: true,
		Old: releasesAndCloses, New: "\tattachRelease(m, core.Release{Term: term, At: now})\n\treturn m, nil\n",
	},
	{
		Rule: "L6b", Name: "a leader that has resigned leads on", Pkg: rulesPkg, Test: "^TestL6AResignedMemberNeverServesAgain$",
		File: resignFile,
		Old:  "\treturn m, l.closeLocked(now) // published", New: "\treturn m, l.publishLocked(now) // published",
	},
	{
		Rule: "L6b", Name: "a follower resigns", Pkg: rulesPkg, Test: "^TestL6AFollowerCannotResign$",
		File: resignFile, Sim: true,
		Old: "\tif term == 0 {\n\t\treturn nil, nil\n\t}\n", New: "",
	},
	{
		Rule: "L6b", Name: "a former leader resigns for its node's term", Pkg: rulesPkg, Test: "^TestL6AFormerLeaderCannotResign$",
		File: resignFile, Sim: true,
		Old:  "\tterm := l.mu.lease.Term()\n",
		New:  "\tterm := l.mu.term\n",
		More: []Edit{{resignFile, "\tl.releaseLocked(m, now)\n", "\tl.mu.lease.Invalidate(now)\n\tattachRelease(m, core.Release{Term: term, At: now})\n"}},
	},
	{
		Rule: "L6b", Name: "a resignation names the newest term that the node knows", Pkg: libPkg, Test: "^TestResignNamesTheTermThatItLeads$",
		File: resignFile,
		Old:  "\tm := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(to)",
		New:  "\tterm = max(term, l.mu.guard.Info(now).Term)\n\tm := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(to)",
		More: []Edit{{resignFile, "\tl.releaseLocked(m, now)\n", "\tl.mu.lease.Invalidate(now)\n\tattachRelease(m, core.Release{Term: term, At: now})\n"}},
	},
	{
		Rule: "L6b", Name: "a resignation releases for ever", Pkg: rulesPkg, Test: "^TestL6ResignationIsPublishedBeforeItLeaves$",
		File: resignFile,
		Old:  "\tl.releaseLocked(m, now)\n", New: "\tl.mu.lease.Release(now)\n\tattachRelease(m, core.Release{Term: term, At: core.Forever})\n",
	},
}
