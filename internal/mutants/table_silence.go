package main

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
		Rule: "silence", Name: "who knows no stalls decides for those who do", Pkg: rulesPkg, Test: "^TestV7AMemberThatKnowsPausesVotesAgainst$",
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
