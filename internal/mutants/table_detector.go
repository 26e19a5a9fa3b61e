package main

// detectorRules take apart when a member takes its leader for dead.
var detectorRules = []Mutant{
	{
		Rule: "succession", Name: "members wait for an election timeout after a restart", Pkg: "./leaderlease/detector", Test: "^TestAfterARestartMembersTakeTurnsOnceTheHoldIsOver$",
		File: "leaderlease/detector/config.go",
		Old:  "\t\td.hint = suspicion{way: restart, at: now}\n", New: "",
	},
	{
		Rule: "succession", Name: "the leader that was lost has a turn, too", Pkg: "./leaderlease/detector", Test: "^TestTurnsAfterSilence$",
		File: "leaderlease/detector/detector.go",
		Old:  "case id == d.leader:\n", New: "case id == d.leader && false:\n",
	},
	{
		Rule: "succession", Name: "a member campaigns against its promise", Pkg: "./leaderlease/detector", Test: "^TestTurnsAfterSilence$",
		File: "leaderlease/detector/detector.go",
		Old:  "case k.Leads, k.Away, k.Bound:", New: "case k.Leads, k.Away:",
	},
	{
		Rule: "succession", Name: "a leader that was deposed is still heard", Pkg: "./leaderlease/detector", Test: "^TestSignsOfLife$",
		File: "leaderlease/detector/detector.go",
		Old:  "if m.GetTerm() >= term && ", New: "if ",
	},
	{
		Rule: "succession", Name: "the next leader is a sign of life of the one before", Pkg: "./leaderlease/detector", Test: "^TestTheNextLeaderIsNoFalseAlarm$",
		File: "leaderlease/detector/detector.go",
		Old:  " && m.GetFrom() == d.leader {", New: " {",
	},
	{
		Rule: "succession", Name: "a hint is acted upon against the promise", Pkg: "./leaderlease/detector", Test: "^TestAHintIsActedUponWhenThePromiseEnds$",
		File: "leaderlease/detector/detector.go",
		Old:  "k.Away || k.Bound ||", New: "k.Away ||",
	},
	{
		Rule: "succession", Name: "what was under way ends a suspicion", Pkg: "./leaderlease/detector", Test: "^TestASuspicionStands$",
		File: "leaderlease/detector/detector.go",
		Old:  "now.Sub(d.hint.at) < d.cfg.Heartbeat {", New: "false {",
	},
	{
		Rule: "succession", Name: "no sign of life ends a suspicion", Pkg: "./leaderlease/detector", Test: "^TestAFalseAlarmIsCounted$",
		File: "leaderlease/detector/detector.go",
		Old:  "now.Sub(d.hint.at) < d.cfg.Heartbeat {", New: "true {",
	},
	{
		Rule: "succession", Name: "a candidate campaigns again", Pkg: "./leaderlease/detector", Test: "^TestACandidateDoesNotCampaignAgain$",
		File: "leaderlease/detector/detector.go",
		Old:  "k.Candidate && length < max(longTurn*2/3, 4*d.cfg.Turn) ||", New: "length < 0 ||",
	},
	{
		Rule: "succession", Name: "who has split the vote after a hint waits for silence", Pkg: rulesPkg, Test: "^TestV7TurnsOverALongWay$",
		File: "leaderlease/detector/detector.go",
		Old:  "k.Candidate && length < max(longTurn*2/3, 4*d.cfg.Turn) ||", New: "k.Candidate && length > 0 ||",
	},
	{
		Rule: "succession", Name: "who has voted stands all the same", Pkg: "./leaderlease/detector", Test: "^TestWhoHasVotedLeavesAnElectionItsTime$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.silent >= d.back", New: "return true",
	},
	{
		Rule: "succession", Name: "who has voted stands all the same after a hint", Pkg: "./leaderlease/detector", Test: "^TestWhoHasVotedStandsBack$",
		File: "leaderlease/detector/detector.go",
		Old:  " || !d.mayStand(k) {", New: " {",
	},
	{
		Rule: "succession", Name: "elections last for longer than turns, and nobody leads", Pkg: nodePkg, Test: "^TestAKilledLeaderIsReplacedWhereDisksAreSlow$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.back = d.silent + d.cfg.ElectionTicks", New: "d.back = 0",
	},
	{
		Rule: "succession", Name: "who cannot vote stands back", Pkg: "./leaderlease/detector", Test: "^TestWhoHasVotedLeavesAnElectionItsTime$",
		File: "leaderlease/detector/detector.go",
		Old:  "if asked > term {", New: "if asked >= term {",
	},
	{
		Rule: "succession", Name: "who has voted stands back from a leader that dies later", Pkg: "./leaderlease/detector", Test: "^TestWhoHasVotedLeavesAnElectionItsTime$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.silent, d.back, d.rival = 0, 0, false", New: "d.silent, d.rival = 0, false",
	},
	{
		Rule: "succession", Name: "a candidate gives its election up for another turn", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.rival || d.hint.forced\n", New: "return true\n",
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
		Rule: "succession", Name: "two who suspect split the vote", Pkg: "./leaderlease/detector", Test: "^TestARequestForAPreVoteIsAHint$",
		File: "leaderlease/detector/detector.go",
		Old:  " || now.Before(h.yield) {", New: " {",
	},
	{
		Rule: "succession", Name: "a candidate whose log is short holds the others up", Pkg: rulesPkg, Test: "^TestV7ACandidateThatCannotWinHoldsNobodyUp$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.hint.yield.IsZero() {", New: "if true {",
	},
	{
		Rule: "succession", Name: "turns are shorter than the way", Pkg: rulesPkg, Test: "^TestV7TurnsOverALongWay$",
		File: "leaderlease/detector/config.go",
		Old:  "max(cfg.Heartbeat/2, 25*time.Millisecond)", New: "25 * time.Millisecond",
	},
	{
		Rule: "succession", Name: "members keep each other's suspicion up", Pkg: "./leaderlease/detector", Test: "^TestASuspicionIsNotRenewedByOthers$",
		File: "leaderlease/detector/detector.go",
		Old:  "peer == d.cfg.Self || d.hint.way != Silence {", New: "peer == d.cfg.Self || d.Suspects(now) {",
	},
	{
		Rule: "succession", Name: "a founder gives its election up at each tick", Pkg: nodePkg, Test: "^TestFoundersThatAreFarApart$",
		File: "leaderlease/detector/detector.go",
		Old:  "	case k.Candidate && (d.fresh || ", New: "	case k.Candidate && (",
		// Without a rival mayStand leaves it its election, too.
		More: []Edit{{"leaderlease/detector/detector.go", "return d.rival || d.hint.forced\n", "return true\n"}},
	},
	{
		Rule: "succession", Name: "turns are as short as ticks", Pkg: rulesPkg, Test: "^TestTurnsAfterSilenceAreLongEnoughForDisks$",
		File: "leaderlease/detector/config.go",
		Old:  "turn = max(turn, int((longTurn+tick-1)/tick))", New: "_ = int((longTurn + tick - 1) / tick)",
	},
	{
		Rule: "succession", Name: "a candidate stands again before its vote is on the disk", Pkg: nodePkg, Test: "^TestASoleVoterWaitsForItsVote$",
		File: "leaderlease/detector/detector.go",
		Old:  "	case k.Candidate && (d.fresh || len(k.Voters) == 1): //", New: "	case false: //",
	},
	{
		Rule: "succession", Name: "who has split the vote waits for raft's own timeout", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "		return o == 0 && since < 2*round\n", New: "		return false\n",
	},
	{
		Rule: "succession", Name: "who has stood in vain after a hint has no first turn", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "		return o == 0 && since < 2*round\n", New: "		return o == 0 && since/round == 1\n",
	},
	{
		Rule: "succession", Name: "a candidate gives up each election that takes a round of turns", Pkg: "./leaderlease/detector", Test: "^TestASplitVoteIsTriedAgainTwice$",
		File: "leaderlease/detector/detector.go",
		Old:  "o == 0 && since < 2*round\n", New: "o == 0\n",
	},
	{
		Rule: "succession", Name: "all who suspect campaign at once", Pkg: "./leaderlease/detector", Test: "^TestAHintIsActedUponWhenThePromiseEnds$",
		File: "leaderlease/detector/detector.go",
		Old:  "turn%of != place || ", New: "turn%of < 0 || place < 0 || ",
	},
	{
		Rule: "succession", Name: "a member campaigns at each poll of its turn", Pkg: "./leaderlease/detector", Test: "^TestAHintIsActedUponWhenThePromiseEnds$",
		File: "leaderlease/detector/detector.go",
		Old:  " || turn+1 == h.turn", New: "",
	},
	{
		Rule: "succession", Name: "any request for a pre-vote is a hint", Pkg: "./leaderlease/detector", Test: "^TestARequestForAPreVoteIsAHint$",
		File: "leaderlease/detector/detector.go",
		Old:  "&& d.quiet(now) && ", New: "&& ",
	},
	{
		Rule: "succession", Name: "a leader that is heard is forgotten", Pkg: "./leaderlease/detector", Test: "^TestALeaderThatIsHeardIsNotForgotten$",
		File: "leaderlease/detector/detector.go",
		Old:  " || !d.quiet(now) {", New: " {",
	},
	{
		Rule: "succession", Name: "a leader without promises is deposed by closed connections", Pkg: rulesPkg, Test: "^TestV7AFalseAlarmChangesNoTermWithoutPromises$",
		File: "leaderlease/detector/detector.go",
		Old:  " || !d.quiet(now) {", New: " {",
	},
	{
		Rule: "succession", Name: "who has missed the hint vetoes", Pkg: "./leaderlease/detector", Test: "^TestARequestForAPreVoteIsAHint$",
		File: "leaderlease/detector/detector.go",
		Old:  "return Decision{Forget: d.forget(now)}", New: "return Decision{}",
	},
	{
		Rule: "succession", Name: "a hint is believed for ever", Pkg: "./leaderlease/detector", Test: "^TestWhatIsNoHint$",
		File: "leaderlease/detector/detector.go",
		Old:  "return d.hint.way != Silence && now.Sub(d.hint.at) < d.cfg.ElectionTimeout", New: "return d.hint.way != Silence",
	},
	{
		Rule: "succession", Name: "a hint about anybody is one about the leader", Pkg: "./leaderlease/detector", Test: "^TestWhatIsNoHint$",
		File: "leaderlease/detector/detector.go",
		Old:  "if peer != d.leader || peer == raft.None", New: "if d.leader == raft.None",
	},
	{
		Rule: "succession", Name: "who has missed the hint vetoes, and nobody leads", Pkg: rulesPkg, Test: "^TestV7AMissedHintVetoesNothing$",
		File: "leaderlease/detector/detector.go",
		Old:  "return Decision{Forget: d.forget(now)}", New: "return Decision{}",
		More: []Edit{{File: "leaderlease/detector/detector.go", Old: "d.suspect(d.leader, PreVote, now)", New: "_ = PreVote"}},
	},
	{
		Rule: "V7", Name: "a hint lets a bound member vote", Pkg: rulesPkg, Test: "^TestV7AHintEndsNoPromise$",
		File: "leaderlease/ready.go",
		Old:  "mu.role, mu.leader = rd.RaftState, rd.Lead",
		New:  "mu.role, mu.leader = rd.RaftState, rd.Lead\n\t\tif rd.Lead == raft.None {\n\t\t\tmu.guard = core.NewGuard(now, l.nonce.incarnation(), l.cfg.MaxPromise, 0)\n\t\t}",
		More: []Edit{
			{File: "leaderlease/detector/detector.go", Old: "k.Away || k.Bound ||", New: "k.Away ||"},
			{File: "leaderlease/detector/detector.go", Old: " || !d.quiet(now) {", New: " {"},
		},
	},
}

// hints take apart what kvnode tells of connections, and does about a leader that it suspects.
var hints = []Mutant{
	{
		Rule: "succession", Name: "a transfer is called silence by who was asked", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "case raftpb.MsgTimeoutNow:\n\t\td.asked, d.wish = now, Transfer\n", New: "case raftpb.MsgTimeoutNow:\n",
	},
	{
		Rule: "succession", Name: "a transfer that failed is what replaced the leader", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.heard, d.asked = now, time.Time{}", New: "d.heard = now",
	},
	{
		Rule: "succession", Name: "a leader says how it was replaced", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.leader != raft.None && d.leader != d.cfg.Self {", New: "d.leader != raft.None {",
	},
}

const (
	learntFile  = "leaderlease/detector/learnt.go"
	detectorPkg = "./leaderlease/detector"
)

// silenceRules take apart what a member learns of how silent its leader is.
var silenceRules = []Mutant{
	{
		Rule: "silence", Name: "own lateness is a leader's silence", Pkg: detectorPkg, Test: "^TestOwnPausesAreNoSilence$",
		File: learntFile,
		Old:  "if late > l.beat {", New: "if false {",
	},
	{
		Rule: "silence", Name: "who wakes up trusts what it knew of its leader", Pkg: detectorPkg, Test: "^TestOwnPausesAreNoSilence$",
		File: learntFile,
		Old:  "if late > l.timeout {", New: "if false {",
	},
	{
		Rule: "silence", Name: "a false alarm does not double the least silence", Pkg: detectorPkg, Test: "^TestFalseAlarmsAreLearntFrom$",
		File: learntFile,
		Old:  "l.doubts+1, min(", New: "l.doubts, min(",
	},
	{
		Rule: "silence", Name: "a false alarm counts for ever", Pkg: detectorPkg, Test: "^TestFalseAlarmsAreLearntFrom$",
		File: learntFile,
		Old:  "for l.calm > calm && now.Sub(l.doubted) >= l.calm {", New: "for false {",
	},
	{
		Rule: "silence", Name: "each false alarm counts for as long as the first", Pkg: detectorPkg, Test: "^TestStallsThatAreForgotten$",
		File: learntFile,
		Old:  "min(2*l.calm, calmest)", New: "2*calm",
	},
	{
		Rule: "silence", Name: "who was wrong once is never quick again", Pkg: detectorPkg, Test: "^TestStallsThatAreForgotten$",
		File: learntFile,
		Old:  "\t\t\tl.calm /= 2\n", New: "\t\t\tbreak\n",
	},
	{
		Rule: "silence", Name: "false alarms count beyond the election timeout", Pkg: detectorPkg, Test: "^TestFalseAlarmsThatCannotBe$",
		File: learntFile,
		Old:  "if l.least(now) < l.timeout {", New: "if true {",
	},
	{
		Rule: "silence", Name: "there is no least silence", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "max(excess*l.stalls.max(now), l.least(now))", New: "excess*l.stalls.max(now)",
	},
	{
		Rule: "silence", Name: "frequent heartbeats make alarms of short stops", Pkg: detectorPkg, Test: "^TestWhereNothingIsLearnt$",
		File: learntFile,
		Old:  "max(leastSilence*l.beat, leastAlarm)", New: "leastSilence*l.beat",
	},
	{
		Rule: "silence", Name: "the least silence is all there is", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "max(excess*l.stalls.max(now), l.least(now))", New: "l.least(now)",
	},
	{
		Rule: "silence", Name: "stalls are not learnt", Pkg: rulesPkg, Test: "^TestV7StallsAreLearnt$",
		File: learntFile,
		Old:  "max(excess*l.stalls.max(now), l.least(now))", New: "leastSilence*l.beat",
	},
	{
		Rule: "silence", Name: "an absence is a stall", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "case took >= l.timeout:\n\t\tl.since = now", New: "case false:\n\t\tl.since = now",
	},
	{
		Rule: "silence", Name: "who was away is trusted at once", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "case took >= l.timeout:\n\t\tl.since = now", New: "case took >= l.timeout:",
	},
	{
		Rule: "silence", Name: "connections that are made anew are stalls", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "case now.Sub(l.since) >= l.learn/2:", New: "default:",
	},
	{
		Rule: "silence", Name: "nothing is learnt while a leader is watched", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "case now.Sub(l.since) >= l.learn/2:", New: "case now.Sub(l.since) >= l.learn:",
	},
	{
		Rule: "silence", Name: "a leader is judged by another one's reign", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "if another {", New: "if false {",
	},
	{
		Rule: "silence", Name: "a leader that was forgotten is watched anew", Pkg: detectorPkg, Test: "^TestASilenceThatIsMuchLongerThanUsualIsAHint$",
		File: learntFile,
		Old:  "if another {", New: "if true {",
	},
	{
		Rule: "silence", Name: "nobody watches before an alarm", Pkg: detectorPkg, Test: "^TestWhereNothingIsLearnt$",
		File: learntFile,
		Old:  "if l.learn == 0 || now.Sub(l.since) < l.learn {", New: "if l.learn == 0 {",
	},
	{
		Rule: "silence", Name: "silence is a hint to who does not learn", Pkg: detectorPkg, Test: "^TestWhereNothingIsLearnt$",
		File: learntFile,
		Old:  "if l.learn == 0 || now.Sub(l.since) < l.learn {", New: "if now.Sub(l.since) < l.learn {",
	},
	{
		Rule: "silence", Name: "a short election timeout is undercut", Pkg: detectorPkg, Test: "^TestWhereNothingIsLearnt$",
		File: learntFile,
		Old:  "if l.timeout < leastTimeout {", New: "if false {",
	},
	{
		Rule: "silence", Name: "stalls are remembered for ever", Pkg: detectorPkg, Test: "^TestAWindowAgainstAList$",
		File: "leaderlease/detector/window.go",
		Old:  "\t\tw.longest[w.at] = 0\n", New: "",
	},
	{
		Rule: "silence", Name: "stalls are remembered for a minute", Pkg: detectorPkg, Test: "^TestWhatIsLearntAgainstItsHistory$",
		File: "leaderlease/detector/window.go",
		Old:  "slots = 10\n", New: "slots = 2\n",
	},
	{
		Rule: "silence", Name: "who is replaced and lives was no false alarm", Pkg: detectorPkg, Test: "^TestWhoIsReplacedAndLives$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.learnt.acquits(", New: "if m.GetFrom() == d.leader && d.learnt.acquits(",
	},
	{
		Rule: "silence", Name: "who comes back after an election timeout was accused falsely", Pkg: detectorPkg, Test: "^TestWhoIsReplacedAndLives$",
		File: learntFile,
		Old:  "if took >= l.timeout {", New: "if false {",
	},
	{
		Rule: "silence", Name: "a sign of life that was under way ends no silence", Pkg: detectorPkg, Test: "^TestASignOfLifeEndsASilenceAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.hint.way == LearntSilence || d.hint.way == Obituary { // it is over, whenever that was sent", New: "if false {",
	},
	{
		Rule: "silence", Name: "who knows no stalls decides for those who do", Pkg: rulesPkg, Test: "^TestV7WhoKnowsStallsOutvotesWhoDoesNot$",
		File: "leaderlease/detector/detector.go",
		Old:  " && !d.learnt.usual(now) {", New: " {",
	},
	{
		Rule: "silence", Name: "a false alarm says nothing of other members' suspicions", Pkg: detectorPkg, Test: "^TestAPreVoteIsNoHintInAUsualSilence$",
		File: learntFile,
		Old:  " || silence < l.least(now) && l.doubts > 0", New: "",
	},
	{
		Rule: "silence", Name: "who does not learn goes by stalls", Pkg: detectorPkg, Test: "^TestAPreVoteIsNoHintInAUsualSilence$",
		File: learntFile,
		Old:  "\tif l.learn == 0 {\n\t\treturn false", New: "\tif false {\n\t\treturn false",
	},
	{
		Rule: "silence", Name: "a member that is bound raises alarms", Pkg: detectorPkg, Test: "^TestASilenceIsNoHintWhileThePromiseLasts$",
		File: "leaderlease/detector/detector.go",
		Old:  "\td.learnt.runs(now)\n\tif k.Leads ||", New: "\td.learnt.runs(now)\n\tif d.hint.way == Silence && d.learnt.accuses(d.leader, now) {\n\t\td.suspect(d.leader, LearntSilence, now)\n\t}\n\tif k.Leads ||",
	},
	{
		Rule: "silence", Name: "a loop polls when all is well", Pkg: detectorPkg, Test: "^TestWhenALoopPolls$",
		File: learntFile,
		Old:  "silence >= limit-in && ", New: "",
	},
	{
		Rule: "silence", Name: "a loop polls for as long as nobody leads", Pkg: detectorPkg, Test: "^TestWhenALoopPolls$",
		File: learntFile,
		Old:  "silence >= limit-in && silence < l.timeout", New: "silence >= limit-in",
	},
	{
		Rule: "V7", Name: "silence lets a bound member vote", Pkg: rulesPkg, Test: "^TestV7LearntSilenceEndsNoPromise$",
		File: "leaderlease/ready.go",
		Old:  "mu.role, mu.leader = rd.RaftState, rd.Lead",
		New:  "mu.role, mu.leader = rd.RaftState, rd.Lead\n\t\tif rd.Lead == raft.None {\n\t\t\tmu.guard = core.NewGuard(now, l.nonce.incarnation(), l.cfg.MaxPromise, 0)\n\t\t}",
		More: []Edit{{File: "leaderlease/detector/detector.go", Old: "k.Away || k.Bound ||", New: "k.Away ||"}},
	},
}
