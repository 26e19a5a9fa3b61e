package main

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
		Rule: "silence", Name: "who wakes up trusts what it knew of its leader", Pkg: detectorPkg, Test: "^TestOwnPausesAreNoSilence$",
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
		Rule: "silence", Name: "who was wrong once is never quick again", Pkg: detectorPkg, Test: "^TestPausesThatAreForgotten$",
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
		Rule: "silence", Name: "who was away is trusted at once", Pkg: detectorPkg, Test: "^TestAnUnusuallyLongSilenceIsASuspicion$",
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
		Rule: "silence", Name: "nobody watches before an alarm", Pkg: detectorPkg, Test: "^TestWhereNothingIsObserved$",
		File: learntFile,
		Old:  "if a.learn == 0 || now.Sub(a.since) < a.learn {", New: "if a.learn == 0 {",
	},
	{
		Rule: "silence", Name: "silence is a hint to who does not learn", Pkg: detectorPkg, Test: "^TestWhereNothingIsObserved$",
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
		Rule: "silence", Name: "who is replaced and lives was no false alarm", Pkg: detectorPkg, Test: "^TestALeaderIsReplacedAndLives$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.adaptive.refute(", New: "if m.GetFrom() == d.leader && d.adaptive.refute(",
	},
	{
		Rule: "silence", Name: "who comes back after an election timeout was accused falsely", Pkg: detectorPkg, Test: "^TestALeaderIsReplacedAndLives$",
		File: learntFile,
		Old:  "if took >= a.timeout {", New: "if false {",
	},
	{
		Rule: "silence", Name: "a sign of life that was under way ends no silence", Pkg: detectorPkg, Test: "^TestASignOfLifeEndsASilenceAtOnce$",
		File: "leaderlease/detector/detector.go",
		Old:  "if d.suspicion.way == LongSilence || d.suspicion.way == ProcessDied { // over, whenever the message was sent", New: "if false {",
	},
	{
		Rule: "silence", Name: "who knows no stalls decides for those who do", Pkg: rulesPkg, Test: "^TestV7AMemberThatKnowsPausesVotesAgainst$",
		File: "leaderlease/detector/detector.go",
		Old:  " && !d.adaptive.isUsual(now) {", New: " {",
	},
	{
		Rule: "silence", Name: "a false alarm says nothing of other members' suspicions", Pkg: detectorPkg, Test: "^TestAPreVoteIsNoSuspicionInAUsualSilence$",
		File: learntFile,
		Old:  " || silence < a.minLimit(now) && a.doubled > 0", New: "",
	},
	{
		Rule: "silence", Name: "who does not learn goes by stalls", Pkg: detectorPkg, Test: "^TestAPreVoteIsNoSuspicionInAUsualSilence$",
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
		Rule: "silence", Name: "a loop polls for as long as nobody leads", Pkg: detectorPkg, Test: "^TestWhenALoopPolls$",
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
