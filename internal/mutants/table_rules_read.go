package main

// readRules are those of sections 6 and 8 of the protocol.
var readRules = []Mutant{
	{
		Rule: "§6", Name: "ReadIndex answers before an own-term commit", Pkg: rulesPkg, Test: "^TestReadSoleVoterBeforeOwnTermCommit$",
		File: "leaderlease/outbound.go",
		Old:  "l.mu.lease.Term() != 0 && l.mu.lease.HasOwnTermCommit() &&", New: "l.mu.lease.Term() != 0 &&",
	},
	{
		Rule: "§6", Name: "applied index not awaited", Sim: true, Pkg: rulesPkg, Test: "^TestReadWaitsUntilApplied$",
		File: "leaderlease/read.go",
		Old:  "\tif l.applied.Load() < index {\n\t\treturn ReadResult{}, false\n\t}\n", New: "",
	},
	{
		Rule: "§6", Name: "a read that waits does not await the applied index", Pkg: rulesPkg, Test: "^TestReadWaitsUntilApplied$",
		File: "leaderlease/read.go",
		Old:  "\tif w.remote || l.applied.Load() >= index {\n", New: "\tif true {\n",
	},
	{
		Rule: "§6", Name: "an ended context leaves its read behind", Pkg: libPkg, Test: "^TestStartReadEndsWithItsContext$",
		File: "leaderlease/waiter.go",
		Old:  "\tw.abandon()\n\treturn true, e\n", New: "\treturn true, e\n",
	},
	{
		Rule: "§6", Name: "a read joins any renewal", Pkg: rulesPkg, Test: "^TestReadJoinsOnlyWhatCoversIt$",
		File: "leaderlease/rounds.go",
		Old:  "return w.at > 0 && w.at < v.Usable", New: "return w.at > 0",
	},
	{
		Rule: "§6", Name: "a round for each read", Pkg: rulesPkg, Test: "^TestReadsShareOneRound$",
		File: "leaderlease/read.go",
		Old:  "\tif l.needsRoundLocked() {\n", New: "\tif true {\n",
	},
	{
		Rule: "§6", Name: "forwarded reads answered without a lease", Pkg: rulesPkg, Test: "^TestReadForwardedNeedsALease$", Sim: true,
		File: "leaderlease/inbound.go",
		Old:  "if v, _, s := l.check(); s == core.Valid {", New: "if v, _, s := l.check(); s >= core.Expired {",
	},
	{
		Rule: "§6", Name: "request ids repeat after a restart", Pkg: rulesPkg, Test: "^TestReadAnswerOfAnEarlierStart$",
		File: "leaderlease/lease.go",
		Old:  "rand.Read(l.nonce[:])", New: "rand.Read(nil)",
	},
	{
		Rule: "§6", Name: "reads outlive the leadership they began under", Pkg: rulesPkg, Test: "^TestReadFailsFastWhenLeadershipMoves$",
		File: "leaderlease/ready.go",
		Old:  "if mu.term != term || mu.leader != leader {", New: "if false && (mu.term != term || mu.leader != leader) {",
	},
	{
		Rule: "A1", Name: "margin 0", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestClockMarginCoversTheDrift$",
		File: leaseFile,
		Old:  "l.end.Add(-l.p.MaxClockSkew)", New: "l.end",
	},
	{
		Rule: "§8", Name: "a reader does not notice a clock that went back", Pkg: rulesPkg, Test: "^TestClockOfTheLeaderGoesBack$",
		File: "leaderlease/core/view.go",
		Old:  "v.Status == Valid && v.From <= now && now < v.Usable", New: "v.Status == Valid && now < v.Usable",
	},
	{
		Rule: "§8", Name: "a clock that went back is trusted again", Pkg: rulesPkg, Test: "^TestClockOfTheLeaderGoesBack$",
		File: "leaderlease/lease.go",
		Old:  "now < l.mu.last", New: "now < l.mu.last && false",
	},
	{
		Rule: "§8", Name: "a voter's promise from before its clock went back", Pkg: rulesPkg, Test: "^TestClockOfAVoterGoesBack$",
		File: "leaderlease/lease.go",
		Old:  "\tl.mu.guard.StartOver(now)\n", New: "",
	},
	{
		Rule: "§8", Name: "a clock that goes back frees the voter", Pkg: rulesPkg, Test: "^TestClockOfAVoterGoesBack$",
		File: guardFile,
		Old:  "\tg.holdUntil = now.Add(hold)\n", New: "\tg.holdUntil = now\n",
	},
	{
		Rule: "§8", Name: "a clock that failed is trusted at once", Pkg: rulesPkg, Test: "^TestClockFails$",
		File: "leaderlease/lease.go",
		Old:  "\t\tl.mu.lease.ClockRead(now)\n", New: "\t\tl.mu.lease.Trust()\n",
		More: []Edit{{leaseFile, "// Close turns the lease off for good.\n", "func (l *Lease) Trust() { l.clockFault = false }\n\n// Close turns the lease off for good.\n"}},
	},
	{
		Rule: "§8", Name: "send instants reach Forever", Pkg: libPkg, Test: "^TestAClockSpikeMakesNoLeaseForEver$",
		File: "leaderlease/core/message.go",
		Old:  "const maxReading Instant = 1 << 62", New: "const maxReading = Forever",
		More: []Edit{{leaseFile, "l.shift >= time.Duration(maxReading)", "false"}},
	},
	{
		Rule: "§8", Name: "a clock may go back as often as it likes", Pkg: libPkg, Test: "^TestAClockThatKeepsSteppingIsDistrusted$",
		File: leaseFile,
		Old:  "l.steps > maxSteps ||", New: "",
	},
	{
		Rule: "§8", Name: "the lease outlives a clock that fails", Pkg: rulesPkg, Test: "^TestClockFails$",
		File: "leaderlease/lease.go",
		Old:  "\t\tl.mu.lease.FailClock()\n", New: "",
	},
	{
		Rule: "§8", Name: "send instants repeat after the clock went back", Pkg: rulesPkg, Test: "^TestClockThatWentBackIsUsedAgain$",
		File: leaseFile,
		Old:  "\tl.shift = max(l.shift, max(l.after, l.probed).Sub(now))\n", New: "\tl.after, l.probed = 0, 0\n",
	},
	{
		Rule: "§8", Name: "a voter goes by its clock after a disruption", Pkg: rulesPkg, Test: "^TestClockOfAVoterJumpsAhead$",
		File: "leaderlease/lease.go",
		Old:  "\t\tl.startOverLocked(now, marker)\n\tcase now < l.mu.last:",
		New:  "\t\tl.mu.marker = marker\n\t\tl.mu.lease.StartOver(now)\n\t\tl.publishFaultLocked(now)\n\tcase now < l.mu.last:", Sim: true,
	},
	{
		Rule: "§8", Name: "a hold that is measured from before the disruption", Pkg: libPkg, Test: "^TestDisruptionBetweenTwoReadings$",
		File: "leaderlease/lease.go",
		Old:  "\tif marker != l.mu.marker {\n", New: "\tif false {\n",
	},
	{
		Rule: "§8", Name: "a restart hold that is measured from before a disruption", Pkg: libPkg, Test: "^TestDisruptionWithinNew$",
		File: "leaderlease/lease.go",
		Old:  "\tmarker := l.disruptions()\n\tnow := cfg.Clock.Now()\n", New: "\tnow := cfg.Clock.Now()\n\tmarker := l.disruptions()\n",
	},
	{
		Rule: "§8", Name: "a reader does not look at the disruption marker", Pkg: rulesPkg, Test: "^TestClockDisruptionVoidsTheLease$",
		File: "leaderlease/read.go",
		Old:  "return l.disruptable != nil && l.disruptable.Disruptions() != v.marker", New: "return l.disruptable == nil && v == nil",
	},
	{
		Rule: "§8", Name: "a disrupted clock does not void the lease", Pkg: rulesPkg, Test: "^TestClockDisruptionVoidsTheLease$",
		File: "leaderlease/lease.go",
		Old:  "\tl.mu.lease.StartOver(now)\n", New: "",
	},
	{
		Rule: "§8", Name: "the rate watch sees nothing", Pkg: rulesPkg, Test: "^TestClockRateWatchGivesUp$",
		File: "leaderlease/core/peer.go",
		Old:  "return voter*bound > most+slack || voter < least*bound-slack", New: "return voter*bound > most+slack && voter < least*bound-slack",
	},
	{
		Rule: "§8", Name: "grants of a voter with a fast clock count", Pkg: rulesPkg, Test: "^TestClockFastVoterDoesNotCount$",
		File: peerFile,
		Old:  "\tif p.rate.suspect {\n\t\treturn 0\n\t}\n", New: "",
	},
	{
		Rule: "§6", Name: "raft's early answer is served", Pkg: libPkg, Test: "^TestRaftsAnswerBelowTheTermIsNotServed$",
		File: "leaderlease/rounds.go",
		Old:  "leads && !l.mayAnswerLocked(s.Index)", New: "leads && !l.mayAskLocked()",
	},
	{
		Rule: "§6", Name: "raft's early answer is sent", Pkg: libPkg, Test: "^TestRaftsAnswerBelowTheTermDoesNotLeave$",
		File: "leaderlease/outbound.go",
		Old:  "if !l.mayAnswerLocked(m.GetIndex()) {", New: "if !l.mayAskLocked() {",
	},
	{
		Rule: "V3", Name: "votes of a lost term elect a bound node", Pkg: testPkg, Test: "^TestVotesOfALostTermElectNoBoundNode$",
		File: "leaderlease/inbound.go",
		Old:  "	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:\n		return l.mayWin(m)\n", New: "",
		// Blocks is the second line of defence.
		More: []Edit{{"leaderlease/ready.go", "counts := rd.RaftState == raft.StateCandidate || l.maybeAloneLocked()", "counts := l.maybeAloneLocked()"}},
	},
	{
		Rule: "L6", Name: "a release does not cover the newest probe", Pkg: "./leaderlease/core", Test: "^TestReleaseCoversProbesOfALaterClock$",
		File: leaseFile,
		Old:  "	l.probed = max(l.probed, sent)\n", New: "",
	},
	{
		Rule: "§6", Name: "an answer of a leader without the library is accepted", Pkg: libPkg, Test: "^TestUnattestedAnswersAreRefused$",
		File: "leaderlease/inbound.go",
		Old:  "	byRound, err := answerOf(m)\n", New: "	byRound, err := answerOf(m)\n	err = nil\n",
	},
	{
		Rule: "§6", Name: "commit index loaded first", Pkg: libPkg, Test: "^TestCommitIndexIsReadAfterTheChecks$",
		File: "leaderlease/read.go",
		Old:  "\tnow := l.clock.Now()\n\tv := l.view.Load()\n\tif v.Check(now) != core.Valid ||",
		New:  "\tindex = l.commit.Load()\n\tnow := l.clock.Now()\n\tv := l.view.Load()\n\tif v.Check(now) != core.Valid ||",
		More: []Edit{{"leaderlease/read.go", "return l.commit.Load(), core.Valid", "return index, core.Valid"}},
	},
	{
		Rule: "§6", Name: "commit index loaded first by a read that may wait", Pkg: libPkg, Test: "^TestCommitIndexIsReadAfterTheChecks$",
		File: "leaderlease/read.go",
		Old:  "\tv, now, s := l.check()\n", New: "\tindex := l.commit.Load()\n\tv, now, s := l.check()\n",
		More: []Edit{{"leaderlease/read.go", "\tindex := l.commit.Load()\n\tif l.applied", "\tif l.applied"}},
	},
	{
		Rule: "§6", Name: "view stored outside the lock", Pkg: libPkg, Test: "^TestViewsAreStoredUnderTheLock$",
		File: "leaderlease/tracing.go",
		Old:  "\tl.view.Store(v)\n",
		New:  "\tif l.view.Load() == nil {\n\t\tl.view.Store(v)\n\t} else {\n\t\tl.mu.Unlock()\n\t\tl.view.Store(v)\n\t\tl.mu.Lock()\n\t}\n",
	},
	{
		Rule: "§6", Name: "a round that was asked for is answered from the lease", Pkg: rulesPkg, Test: "^TestReadIndexOnAFollowerTrustsNoClock$",
		File: "leaderlease/inbound.go",
		Old:  "if !quorum && l.cfg.Send != nil", New: "if l.cfg.Send != nil",
	},
	{
		Rule: "§6", Name: "a new leader answers for a round by a renewal", Pkg: libPkg, Test: "^TestNewLeaderKeepsARequestForARound$",
		File: "leaderlease/inbound.go",
		Old:  "remote: true, needsRound: quorum,", New: "remote: true,",
	},
	{
		Rule: "§6", Name: "an answer from a lease passes for a round", Pkg: libPkg, Test: "^TestAnswerOfALeaseIsNoRound$",
		File: "leaderlease/inbound.go",
		Old:  "err == nil && (byRound || !quorum)", New: "err == nil && (byRound || !quorum || true)",
	},
	{
		Rule: "storage", Name: "a pre-vote that raft cannot reject is let in", Pkg: libPkg, Test: "^TestPreVoteOfAShorterLogAtTermZero$",
		File: "leaderlease/inbound.go",
		Old:  " && !l.panicsLocked(m)\n", New: "\n",
	},
	{
		Rule: "V5", Name: "a clock that cannot be read holds nothing back", Pkg: libPkg, Test: "^TestReadyIsHeldBackWithoutAClock$",
		File: "leaderlease/ready.go",
		Old:  "return counts && l.mu.guard.Owes(now)", New: "return counts && now.Valid() && l.mu.guard.Owes(now)",
	},
	{
		Rule: "§6", Name: "an answer of a later term does not reach raft", Pkg: libPkg, Test: "^TestAnswersAreTakenWhereTheyArrive$",
		File: "leaderlease/inbound.go",
		Old:  "&& m.GetTerm() == l.mu.term && len", New: "&& len",
	},
	{
		Rule: "§6", Name: "a node that does not follow takes an answer", Pkg: libPkg, Test: "^TestAnswersAreTakenWhereTheyArrive$",
		File: "leaderlease/inbound.go",
		Old:  "mine := l.mu.role == raft.StateFollower && ", New: "mine := ",
	},
}
