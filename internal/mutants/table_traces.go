package main

const (
	tracePkg  = "./leaderlease/leasetrace"
	judgeFile = "leaderlease/leasetrace/judge.go"
	falseTest = "^TestChangedEventsAreRefused$"
	savedTest = "^TestAProcessHoldsForSavedPromises$"
)

// judges are bugs of the judge of traces, which would let others pass.
var judges = []Mutant{
	{
		Rule: "judge", Name: "the judge goes on behind a gap", Pkg: tracePkg, Test: "^TestAGapEndsAJudgement$",
		File: "leaderlease/leasetrace/trace.go",
		Old:  "if want, got := uint64(i+1), p.Events[i].Seq; got != want {", New: "if want, got := uint64(i+1), p.Events[i].Seq; got < want {",
	},
	{
		Rule: "judge", Name: "a gap passes", Pkg: tracePkg, Test: "^TestAGapEndsAJudgement$",
		File: "leaderlease/leasetrace/judge.go",
		Old:  "		if p.Gap {\n", New: "		if false {\n",
	},
	{
		Rule: "judge", Name: "a line that cannot be read is left out", Pkg: tracePkg, Test: "^TestIncompleteTraces$",
		File: "leaderlease/leasetrace/file.go",
		Old:  "		p.cut(p.torn)\n", New: "		p.torn = \"\"\n",
	},
	{
		Rule: "judge", Name: "the mark of a gap is left out", Pkg: tracePkg, Test: "^TestARecorderMarksLostEvents$",
		File: "leaderlease/leasetrace/record.go",
		Old:  "lost > 0 {", New: "lost > 1<<40 {",
		More: []Edit{{"leaderlease/leasetrace/trace.go", "got != want {", "got < want {"}},
	},
	{
		Rule: "judge", Name: "what a recorder has lost has an end", Pkg: tracePkg, Test: "^TestIncompleteTraces$",
		File: "leaderlease/leasetrace/file.go",
		Old:  "	case l.End == p.last():\n", New: "	case l.End != 0:\n",
	},
	{
		Rule: "judge", Name: "grants are not looked for", Pkg: tracePkg, Test: falseTest,
		File: "leaderlease/leasetrace/judge.go",
		Old:  "return carried(KindGrant, e.Peer, id, e), true", New: "return carried(KindGrant, e.Peer, id, e), false",
	},
	{
		Rule: "judge", Name: "votes are not looked for", Pkg: tracePkg, Test: falseTest,
		File: "leaderlease/leasetrace/judge.go",
		Old:  "return carried(KindVoteOut, e.Peer, id, e), true", New: "return carried(KindVoteOut, e.Peer, id, e), false",
	},
	{
		Rule: "judge", Name: "what was kept back counts as sent", Pkg: tracePkg, Test: falseTest + "/kept_back$",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "return differ(\"the vote may leave\", e.OK, others || !r.guard.Bound(e.At))", New: "return differ(\"the vote may leave\", e.OK, e.OK || others)",
	},
	{
		Rule: "judge", Name: "any missing message is excused", Pkg: tracePkg, Test: falseTest,
		File: judgeFile,
		Old:  "		if r.p.Ended && r.gap == \"\" {\n			return false\n		}\n", New: "",
	},
	{
		Rule: "judge", Name: "a missing end excuses all that was before it", Pkg: tracePkg, Test: "^TestAMissingEndMayHideSends$",
		File: judgeFile,
		Old:  "return at == 0 || r.whole == 0 || at >= r.p.Events[r.whole-1].At", New: "return at >= 0",
	},
	{
		Rule: "judge", Name: "a trace from a restart on excuses what is missing in it", Pkg: tracePkg, Test: "^TestAMemberWithoutATraceBefore$",
		File: "leaderlease/leasetrace/judge.go",
		Old:  "		return at < first.At\n", New: "		return true\n",
	},
	{
		Rule: "judge", Name: "any term will do for a probe", Pkg: tracePkg, Test: falseTest + "/a_probe_of_another_term$",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "if e.Term == 0 || e.Term != r.lease.Term() {", New: "if e.Term == 0 {",
	},
	{
		Rule: "judge", Name: "a term may be led twice", Pkg: tracePkg, Test: falseTest + "/led_twice$",
		File: judgeFile,
		Old:  "w != nil && w != r {", New: "w != nil && w.p == nil {",
	},
	{
		Rule: "judge", Name: "readers need not be shown what has changed", Pkg: tracePkg, Test: falseTest + "/never_see$",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "r.due, r.owing = e.At, !same(&v, &r.shown)", New: "r.due, r.owing = e.At, false && !same(&v, &r.shown)",
	},
	{
		Rule: "judge", Name: "a clock may go back unnoticed", Pkg: tracePkg, Test: falseTest + "/goes_back$",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "e.At < r.last && !stepped", New: "e.At < 0 && !stepped",
	},
	{
		Rule: "judge", Name: "the claim is not looked at", Pkg: tracePkg, Test: "^TestTheClaimIsChecked$",
		File: judgeFile,
		Old:  "v.Term < r.won && v.Check", New: "v.Term < 0 && v.Check",
	},
	{
		Rule: "judge", Name: "what is received may be sent later", Pkg: tracePkg, Test: "^TestNothingArrivesBeforeItIsSent$|^TestTheClaimIsChecked$",
		File: judgeFile,
		Old:  "return !known || from.r.at > from.at || from.r.at == from.r.whole", New: "return !known || from != nil",
	},
	{
		Rule: "judge", Name: "a received message tells nothing of earlier elections", Pkg: tracePkg, Test: "^TestTheClaimIsChecked$",
		File: judgeFile,
		Old:  "		r.won = max(r.won, from.won)\n", New: "		_ = from.won\n",
	},
	{
		Rule: "judge", Name: "a restart need not hold", Pkg: tracePkg, Test: "^TestAProcessHoldsForEarlierGrants$",
		File: judgeFile,
		Old:  "	case s.Hold < r.owed:\n", New: "	case s.Hold < 0:\n",
	},
	{
		Rule: "judge", Name: "a restart holds for what was written down only", Pkg: tracePkg, Test: "^TestARestartHoldsWithoutEarlierTraces$",
		File: judgeFile,
		Old:  "case s.Term > 0 && s.Hold < longest:", New: "case s.Term > 0 && s.Hold < 0:",
	},
	{
		Rule: "judge", Name: "a restart holds for as long as it ever did", Pkg: tracePkg, Test: savedTest,
		File: "leaderlease/leasetrace/trace.go",
		Old:  "			least = min(least, e.Duration) // even", New: "			// even",
	},
	{
		Rule: "judge", Name: "a restart holds for what was saved at the start before", Pkg: tracePkg, Test: savedTest,
		File: "leaderlease/leasetrace/trace.go",
		Old:  "			least = max(least, e.Duration)\n", New: "			least = max(least, 0)\n",
	},
	{
		Rule: "judge", Name: "what was recorded over cannot have been a save", Pkg: tracePkg, Test: "^TestTheSavedPromiseMayFallBeforeTheFirstEvent$",
		File: "leaderlease/leasetrace/trace.go",
		Old:  "if e.Seq != last+1 &&", New: "if last > 0 && e.Seq != last+1 &&",
	},
	{
		Rule: "judge", Name: "what is missing cannot have been a save", Pkg: tracePkg, Test: savedTest,
		File: "leaderlease/leasetrace/trace.go",
		Old:  "(!p.Ended || p.Cut != \"\") && s.Saved > 0", New: "p.Cut != \"\" && s.Saved > 0",
	},
	{
		Rule: "judge", Name: "a process that holds for nothing forgets what it has saved", Pkg: tracePkg, Test: "^TestARestartHoldsForTheSavedPromise$",
		File: judgeFile,
		Old:  "longest := cmp.Or(s.Saved, s.MaxPromise)", New: "longest := min(cmp.Or(s.Saved, s.MaxPromise), s.Duration)",
	},
	{
		Rule: "judge", Name: "a save may be of anything", Pkg: tracePkg, Test: "^TestChangedSavesAreRefused$/another_one",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "	return differ(\"the longest promise that is saved\", e.Duration, d)", New: "	return nil",
	},
	{
		Rule: "judge", Name: "a save may come at any time", Pkg: tracePkg, Test: "^TestChangedSavesAreRefused$/early$",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "if !ok || r.saving != 0 {", New: "if d = e.Duration; !ok && r.saving != 0 {",
	},
	{
		Rule: "judge", Name: "a change may be over whose voters are not told", Pkg: tracePkg, Test: "^TestAChangeIsOverWhenItsVotersCount$",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "if !e.OK && !r.configured {", New: "if false {",
	},
	{
		Rule: "judge", Name: "flags may be told twice", Pkg: simPkg, Test: "^TestTracesHaveEveryKind$",
		File: "leaderlease/leasetrace/replay.go",
		Old:  "if r.flags[e.Kind] == e.OK {", New: "if false {",
	},
	{
		Rule: "trace", Name: "a reader does not see that it was overtaken", Pkg: tracePkg, Test: "^TestATraceKeepsTheNewestEvents$",
		File: "leaderlease/leasetrace/trace.go",
		Old:  "		at = max(at, t.next-size)\n", New: "		_ = t.next - size\n",
	},
	{
		Rule: "trace", Name: "two Leases share a trace", Pkg: libPkg, Test: "^TestATraceIsOfOneLease$",
		File: "leaderlease/leasetrace/trace.go",
		Old:  "	if t.start.ID != 0 {\n", New: "	if false {\n",
	},
}
