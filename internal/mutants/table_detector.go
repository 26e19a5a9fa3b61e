package main

// detectorRules take apart when a member takes its leader for dead.
var detectorRules = []Mutant{
	{
		Rule: "succession", Name: "members wait for an election timeout after a restart", Pkg: "./leaderlease/detector", Test: "^TestAfterARestartMembersCampaignInSlots$",
		File: "leaderlease/detector/config.go",
		Old:  "\t\td.suspicion = suspicion{way: restart, at: now}\n", New: "",
	},
	{
		Rule: "succession", Name: "the leader that was lost has a turn, too", Pkg: "./leaderlease/detector", Test: "^TestSlotsAfterSilence$",
		File: "leaderlease/detector/detector.go",
		Old:  "case id == d.leader:\n", New: "case id == d.leader && false:\n",
	},
	{
		Rule: "succession", Name: "a member campaigns against its promise", Pkg: "./leaderlease/detector", Test: "^TestSlotsAfterSilence$",
		File: "leaderlease/detector/detector.go",
		Old:  "case k.Leads, k.Away, k.Bound:", New: "case k.Leads, k.Away:",
	},
	{
		Rule: "succession", Name: "a leader that was deposed is still heard", Pkg: "./leaderlease/detector", Test: "^TestSignsOfLife$",
		File: "leaderlease/detector/detector.go",
		Old:  "if m.GetTerm() >= term && ", New: "if ",
	},
	{
		Rule: "succession", Name: "the next leader is a sign of life of the one before", Pkg: "./leaderlease/detector", Test: "^TestTheNextLeaderRefutesNoSuspicion$",
		File: "leaderlease/detector/detector.go",
		Old:  " && m.GetFrom() == d.leader {", New: " {",
	},
	{
		Rule: "succession", Name: "a hint is acted upon against the promise", Pkg: "./leaderlease/detector", Test: "^TestASuspicionIsActedUponWhenThePromiseEnds$",
		File: "leaderlease/detector/detector.go",
		Old:  "k.Away || k.Bound ||", New: "k.Away ||",
	},
	{
		Rule: "succession", Name: "what was under way ends a suspicion", Pkg: "./leaderlease/detector", Test: "^TestASuspicionStands$",
		File: "leaderlease/detector/detector.go",
		Old:  "now.Sub(d.suspicion.at) < d.cfg.Heartbeat {", New: "false {",
	},
	{
		Rule: "succession", Name: "no sign of life ends a suspicion", Pkg: "./leaderlease/detector", Test: "^TestAFalseSuspicionIsCounted$",
		File: "leaderlease/detector/detector.go",
		Old:  "now.Sub(d.suspicion.at) < d.cfg.Heartbeat {", New: "true {",
	},
	{
		Rule: "succession", Name: "a candidate campaigns again", Pkg: "./leaderlease/detector", Test: "^TestACandidateDoesNotCampaignAgain$",
		File: "leaderlease/detector/detector.go",
		Old:  "k.Candidate && length < max(timeoutSlot*2/3, 4*d.cfg.Slot) ||", New: "length < 0 ||",
	},
	{
		Rule: "succession", Name: "after a split vote upon a suspicion a member waits for silence", Pkg: rulesPkg, Test: "^TestV7TurnsOverALongWay$",
		File: "leaderlease/detector/detector.go",
		Old:  "k.Candidate && length < max(timeoutSlot*2/3, 4*d.cfg.Slot) ||", New: "k.Candidate && length > 0 ||",
	},
	{
		Rule: "succession", Name: "a voter campaigns after its vote", Pkg: "./leaderlease/detector", Test: "^TestAVoterDefersForAnElectionTimeout$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.silent >= d.deferUntil", New: "return true",
	},
	{
		Rule: "succession", Name: "a voter campaigns after its vote upon a suspicion", Pkg: "./leaderlease/detector", Test: "^TestAVoterDefers$",
		File: "leaderlease/detector/detector.go",
		Old:  " || !d.mayCampaign(k) {", New: " {",
	},
	{
		Rule: "succession", Name: "elections last longer than slots, and no member leads", Pkg: nodePkg, Test: "^TestAKilledLeaderIsReplacedWhereDisksAreSlow$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.deferUntil = d.silent + d.cfg.ElectionTicks", New: "d.deferUntil = 0",
	},
	{
		Rule: "succession", Name: "a learner defers", Pkg: "./leaderlease/detector", Test: "^TestAVoterDefersForAnElectionTimeout$",
		File: "leaderlease/detector/detector.go",
		Old:  "if asked > term {", New: "if asked >= term {",
	},
	{
		Rule: "succession", Name: "a voter defers although a later leader dies", Pkg: "./leaderlease/detector", Test: "^TestAVoterDefersForAnElectionTimeout$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.silent, d.deferUntil, d.rival = 0, 0, false", New: "d.silent, d.rival = 0, false",
	},
	{
		Rule: "succession", Name: "a candidate gives its election up for another turn", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.rival || d.suspicion.forced\n", New: "return true\n",
	},
	{
		Rule: "succession", Name: "a rival counts for ever", Pkg: "./leaderlease/detector", Test: "^TestARivalCountsOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.rival = d.rival && !due", New: "_ = due",
	},
	{
		Rule: "succession", Name: "turns that are too short are repeated", Pkg: rulesPkg, Test: "^TestV7TurnsOverALongWay$",
		File: "leaderlease/detector/detector.go",
		Old:  "since >= time.Duration(of)*length; length *= 2 {", New: "since >= time.Duration(of)*length; length *= 1 {",
	},
	{
		Rule: "succession", Name: "two members with a suspicion split the vote", Pkg: "./leaderlease/detector", Test: "^TestAPreVoteIsASuspicion$",
		File: "leaderlease/detector/detector.go",
		Old:  " || now.Before(s.deferUntil) {", New: " {",
	},
	{
		Rule: "succession", Name: "a candidate whose log is short holds the others up", Pkg: rulesPkg, Test: "^TestV7ACandidateThatCannotWinDelaysNoElection$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.suspicion.deferUntil.IsZero() {", New: "if true {",
	},
	{
		Rule: "succession", Name: "turns are shorter than the way", Pkg: rulesPkg, Test: "^TestV7TurnsOverALongWay$",
		File: "leaderlease/detector/config.go",
		Old:  "max(cfg.Heartbeat/2, 25*time.Millisecond)", New: "25 * time.Millisecond",
	},
	{
		Rule: "succession", Name: "members keep each other's suspicion up", Pkg: "./leaderlease/detector", Test: "^TestASuspicionIsNotRenewedByOthers$",
		File: "leaderlease/detector/detector.go",
		Old:  "peer == d.cfg.Self || d.suspicion.way != Silence {", New: "peer == d.cfg.Self || d.Suspects(now) {",
	},
	{
		Rule: "succession", Name: "a founder gives its election up at each tick", Pkg: nodePkg, Test: "^TestFoundersThatAreFarApart$",
		File: "leaderlease/detector/detector.go",
		Old:  "	case k.Candidate && (d.fresh || ", New: "	case k.Candidate && (",
		// Without a rival mayCampaign leaves it its election, too.
		More: []Edit{{"leaderlease/detector/detector.go", "return d.rival || d.suspicion.forced\n", "return true\n"}},
	},
	{
		Rule: "succession", Name: "turns are as short as ticks", Pkg: rulesPkg, Test: "^TestTurnsAfterSilenceAreLongEnoughForDisks$",
		File: "leaderlease/detector/config.go",
		Old:  "slotTicks = max(slotTicks, int((timeoutSlot+tick-1)/tick))", New: "_ = int((timeoutSlot + tick - 1) / tick)",
	},
	{
		Rule: "succession", Name: "a candidate stands again before its vote is on the disk", Pkg: nodePkg, Test: "^TestASoleVoterWaitsForItsVote$",
		File: "leaderlease/detector/detector.go",
		Old:  "	case k.Candidate && (d.fresh || len(k.Voters) == 1): //", New: "	case false: //",
	},
	{
		Rule: "succession", Name: "after a split vote a member waits for raft's own timeout", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "		return at == 0 && since < 2*round\n", New: "		return false\n",
	},
	{
		Rule: "succession", Name: "a member that lost after a suspicion has no first slot", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "		return at == 0 && since < 2*round\n", New: "		return at == 0 && since/round == 1\n",
	},
	{
		Rule: "succession", Name: "a candidate gives up each election that takes a round of turns", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "at == 0 && since < 2*round\n", New: "at == 0\n",
	},
	{
		Rule: "succession", Name: "all members with a suspicion campaign at once", Pkg: "./leaderlease/detector", Test: "^TestASuspicionIsActedUponWhenThePromiseEnds$",
		File: "leaderlease/detector/detector.go",
		Old:  "slot%of != rank || ", New: "slot%of < 0 || rank < 0 || ",
	},
	{
		Rule: "succession", Name: "a member campaigns at each poll of its turn", Pkg: "./leaderlease/detector", Test: "^TestASuspicionIsActedUponWhenThePromiseEnds$",
		File: "leaderlease/detector/detector.go",
		Old:  " || slot+1 == s.slot", New: "",
	},
	{
		Rule: "succession", Name: "any request for a pre-vote is a hint", Pkg: "./leaderlease/detector", Test: "^TestAPreVoteIsASuspicion$",
		File: "leaderlease/detector/detector.go",
		Old:  "&& d.leaderSilent(now) && ", New: "&& ",
	},
	{
		Rule: "succession", Name: "a leader that is heard is forgotten", Pkg: "./leaderlease/detector", Test: "^TestALeaderThatIsHeardIsNotForgotten$",
		File: "leaderlease/detector/detector.go",
		Old:  " || !d.leaderSilent(now) {", New: " {",
	},
	{
		Rule: "succession", Name: "a leader without promises is deposed by closed connections", Pkg: rulesPkg, Test: "^TestV7AFalseAlarmChangesNoTermWithoutPromises$",
		File: "leaderlease/detector/detector.go",
		Old:  " || !d.leaderSilent(now) {", New: " {",
	},
	{
		Rule: "succession", Name: "a member that missed the suspicion vetoes", Pkg: "./leaderlease/detector", Test: "^TestAPreVoteIsASuspicion$",
		File: "leaderlease/detector/detector.go",
		Old:  "return Decision{Forget: d.shouldForget(now)}", New: "return Decision{}",
	},
	{
		Rule: "succession", Name: "a hint is believed for ever", Pkg: "./leaderlease/detector", Test: "^TestWhatIsNoSuspicion$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.suspicion.way != Silence && now.Sub(d.suspicion.at) < d.cfg.ElectionTimeout", New: "return d.suspicion.way != Silence",
	},
	{
		Rule: "succession", Name: "a closed connection of any peer is a suspicion of the leader", Pkg: "./leaderlease/detector", Test: "^TestWhatIsNoSuspicion$",
		File: "leaderlease/detector/detector.go",
		Old:  "if peer != d.leader || peer == raft.None || peer == d.cfg.Self || d.suspicion.way != Silence {", New: "if d.leader == raft.None || peer == d.cfg.Self || d.suspicion.way != Silence {",
	},
	{
		Rule: "succession", Name: "a member that missed the suspicion vetoes, and no member leads", Pkg: rulesPkg, Test: "^TestV7AMissedHintVetoesNothing$",
		File: "leaderlease/detector/detector.go",
		Old:  "return Decision{Forget: d.shouldForget(now)}", New: "return Decision{}",
		More: []Edit{{File: "leaderlease/detector/detector.go", Old: "d.suspect(d.leader, PreVote, now)", New: "_ = PreVote"}},
	},
	{
		Rule: "V7", Name: "a hint lets a bound member vote", Pkg: rulesPkg, Test: "^TestV7AHintEndsNoPromise$",
		File: "leaderlease/ready.go",
		Old:  "mu.role, mu.leader = rd.RaftState, rd.Lead",
		New:  "mu.role, mu.leader = rd.RaftState, rd.Lead\n\t\tif rd.Lead == raft.None {\n\t\t\tmu.guard = core.NewGuard(now, l.nonce.incarnation(), l.cfg.MaxPromise, 0)\n\t\t}",
		More: []Edit{
			{File: "leaderlease/detector/detector.go", Old: "k.Away || k.Bound ||", New: "k.Away ||"},
			{File: "leaderlease/detector/detector.go", Old: " || !d.leaderSilent(now) {", New: " {"},
		},
	},
}

// hints take apart what kvnode tells of connections, and does about a leader that it suspects.
var hints = []Mutant{
	{
		Rule: "succession", Name: "the transferee calls a transfer silence", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "case raftpb.MsgTimeoutNow:\n\t\td.transferAt, d.transferWay = now, Transfer\n", New: "case raftpb.MsgTimeoutNow:\n",
	},
	{
		Rule: "succession", Name: "a transfer that failed is what replaced the leader", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.heard, d.transferAt = now, time.Time{}", New: "d.heard = now",
	},
	{
		Rule: "succession", Name: "a leader says how it was replaced", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.leader != raft.None && d.leader != d.cfg.Self {", New: "d.leader != raft.None {",
	},
}

const (
	learntFile  = "leaderlease/detector/adaptive.go"
	detectorPkg = "./leaderlease/detector"
)

// silenceRules take apart what a member learns of how silent its leader is.
var silenceRules = []Mutant{
	{
		Rule: "silence", Name: "own lateness is a leader's silence", Pkg: detectorPkg, Test: "^TestOwnPausesAreNoSilence$",
		File: learntFile,
		Old:  "if late > a.heartbeat {", New: "if false {",
	},
	{
		Rule: "silence", Name: "after a pause a member trusts its old view of the leader", Pkg: detectorPkg, Test: "^TestOwnPausesAreNoSilence$",
		File: learntFile,
		Old:  "if late > a.timeout {", New: "if false {",
	},
	{
		Rule: "silence", Name: "a false alarm does not double the least silence", Pkg: detectorPkg, Test: "^TestFalseSuspicionsRaiseTheMinimum$",
		File: learntFile,
		Old:  "a.doubled+1, min(", New: "a.doubled, min(",
	},
	{
		Rule: "silence", Name: "a false alarm counts for ever", Pkg: detectorPkg, Test: "^TestFalseSuspicionsRaiseTheMinimum$",
		File: learntFile,
		Old:  "for a.penalty > minPenalty && now.Sub(a.doubledAt) >= a.penalty {", New: "for false {",
	},
	{
		Rule: "silence", Name: "each false alarm counts for as long as the first", Pkg: detectorPkg, Test: "^TestPausesThatAreForgotten$",
		File: learntFile,
		Old:  "min(2*a.penalty, maxPenalty)", New: "2*minPenalty",
	},
	{
		Rule: "silence", Name: "after one false suspicion a detector never suspects early again", Pkg: detectorPkg, Test: "^TestPausesThatAreForgotten$",
		File: learntFile,
		Old:  "\t\t\ta.penalty /= 2\n", New: "\t\t\tbreak\n",
	},
	{
		Rule: "silence", Name: "false alarms count beyond the election timeout", Pkg: detectorPkg, Test: "^TestFalseSuspicionsThatCannotBe$",
		File: learntFile,
		Old:  "if a.minLimit(now) < a.timeout {", New: "if true {",
	},
	{
		Rule: "silence", Name: "there is no least silence", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "max(pauseFactor*a.pauses.max(now), a.minLimit(now))", New: "pauseFactor*a.pauses.max(now)",
	},
	{
		Rule: "silence", Name: "frequent heartbeats make alarms of short stops", Pkg: detectorPkg, Test: "^TestWhereNothingIsObserved$",
		File: learntFile,
		Old:  "max(minHeartbeats*a.heartbeat, minTimeout)", New: "minHeartbeats*a.heartbeat",
	},
	{
		Rule: "silence", Name: "the least silence is all there is", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "max(pauseFactor*a.pauses.max(now), a.minLimit(now))", New: "a.minLimit(now)",
	},
	{
		Rule: "silence", Name: "stalls are not learnt", Pkg: rulesPkg, Test: "^TestV7StallsAreLearnt$",
		File: learntFile,
		Old:  "max(pauseFactor*a.pauses.max(now), a.minLimit(now))", New: "minHeartbeats*a.heartbeat",
	},
	{
		Rule: "silence", Name: "an absence is a stall", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "case took >= a.timeout:\n\t\ta.since = now", New: "case false:\n\t\ta.since = now",
	},
	{
		Rule: "silence", Name: "a leader that was away is trusted at once", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "case took >= a.timeout:\n\t\ta.since = now", New: "case took >= a.timeout:",
	},
	{
		Rule: "silence", Name: "connections that are made anew are stalls", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "case now.Sub(a.since) >= a.learn/2:", New: "default:",
	},
	{
		Rule: "silence", Name: "nothing is learnt while a leader is watched", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "case now.Sub(a.since) >= a.learn/2:", New: "case now.Sub(a.since) >= a.learn:",
	},
	{
		Rule: "silence", Name: "a leader is judged by another one's reign", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "if another {", New: "if false {",
	},
	{
		Rule: "silence", Name: "a leader that was forgotten is watched anew", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
		File: learntFile,
		Old:  "if another {", New: "if true {",
	},
	{
		Rule: "silence", Name: "no observation before a suspicion", Pkg: detectorPkg, Test: "^TestWhereNothingIsObserved$",
		File: learntFile,
		Old:  "if a.learn == 0 || now.Sub(a.since) < a.learn {", New: "if a.learn == 0 {",
	},
	{
		Rule: "silence", Name: "silence is a suspicion without observation", Pkg: detectorPkg, Test: "^TestWhereNothingIsObserved$",
		File: learntFile,
		Old:  "if a.learn == 0 || now.Sub(a.since) < a.learn {", New: "if now.Sub(a.since) < a.learn {",
	},
	{
		Rule: "silence", Name: "a short election timeout is undercut", Pkg: detectorPkg, Test: "^TestWhereNothingIsObserved$",
		File: learntFile,
		Old:  "if a.timeout < minElectionTimeout {", New: "if false {",
	},
	{
		Rule: "silence", Name: "stalls are remembered for ever", Pkg: detectorPkg, Test: "^TestAWindowAgainstAList$",
		File: "leaderlease/detector/adaptive.go",
		Old:  "\t\tw.longest[w.at] = 0\n", New: "",
	},
	{
		Rule: "silence", Name: "stalls are remembered for a minute", Pkg: detectorPkg, Test: "^TestAdaptiveAgainstItsHistory$",
		File: "leaderlease/detector/adaptive.go",
		Old:  "windowMinutes = 10\n", New: "windowMinutes = 2\n",
	},
	{
		Rule: "silence", Name: "a replaced leader that lives is no false suspicion", Pkg: detectorPkg, Test: "^TestALeaderIsReplacedAndLives$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.adaptive.refute(", New: "if m.GetFrom() == d.leader && d.adaptive.refute(",
	},
	{
		Rule: "silence", Name: "a leader that returns after an election timeout is a false suspicion", Pkg: detectorPkg, Test: "^TestALeaderIsReplacedAndLives$",
		File: learntFile,
		Old:  "if took >= a.timeout {", New: "if false {",
	},
	{
		Rule: "silence", Name: "a sign of life that was under way ends no silence", Pkg: detectorPkg, Test: "^TestASignOfLifeEndsASilenceAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.suspicion.way == LongSilence || d.suspicion.way == ProcessDied { // over, whenever the message was sent", New: "if false {",
	},
	{
		Rule: "silence", Name: "a member without observed pauses decides for members with them", Pkg: rulesPkg, Test: "^TestV7AMemberThatKnowsPausesVotesAgainst$",
		File: "leaderlease/detector/detector.go",
		Old:  " && !d.adaptive.isUsual(now) {", New: " {",
	},
	{
		Rule: "silence", Name: "a false alarm says nothing of other members' suspicions", Pkg: detectorPkg, Test: "^TestAPreVoteIsNoSuspicionInAUsualSilence$",
		File: learntFile,
		Old:  " || silence < a.minLimit(now) && a.doubled > 0", New: "",
	},
	{
		Rule: "silence", Name: "a detector without observation goes by pauses", Pkg: detectorPkg, Test: "^TestAPreVoteIsNoSuspicionInAUsualSilence$",
		File: learntFile,
		Old:  "\tif a.learn == 0 {\n\t\treturn false", New: "\tif false {\n\t\treturn false",
	},
	{
		Rule: "silence", Name: "a member that is bound raises alarms", Pkg: detectorPkg, Test: "^TestASilenceIsNoSuspicionWhileThePromiseLasts$",
		File: "leaderlease/detector/detector.go",
		Old:  "\td.adaptive.noteRunning(now)\n\tif k.Leads ||", New: "\td.adaptive.noteRunning(now)\n\tif d.suspicion.way == Silence && d.adaptive.suspect(d.leader, now) {\n\t\td.suspect(d.leader, LongSilence, now)\n\t}\n\tif k.Leads ||",
	},
	{
		Rule: "silence", Name: "a loop polls when all is well", Pkg: detectorPkg, Test: "^TestWhenALoopPolls$",
		File: learntFile,
		Old:  "silence >= limit-in && ", New: "",
	},
	{
		Rule: "silence", Name: "a loop polls while no member leads", Pkg: detectorPkg, Test: "^TestWhenALoopPolls$",
		File: learntFile,
		Old:  "silence >= limit-in && silence < a.timeout", New: "silence >= limit-in",
	},
	{
		Rule: "V7", Name: "silence lets a bound member vote", Pkg: rulesPkg, Test: "^TestV7LearntSilenceEndsNoPromise$",
		File: "leaderlease/ready.go",
		Old:  "mu.role, mu.leader = rd.RaftState, rd.Lead",
		New:  "mu.role, mu.leader = rd.RaftState, rd.Lead\n\t\tif rd.Lead == raft.None {\n\t\t\tmu.guard = core.NewGuard(now, l.nonce.incarnation(), l.cfg.MaxPromise, 0)\n\t\t}",
		More: []Edit{{File: "leaderlease/detector/detector.go", Old: "k.Away || k.Bound ||", New: "k.Away ||"}},
	},
}
