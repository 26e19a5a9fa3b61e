package main

var voterRules = []Mutant{
	{
		Rule: "V1", Name: "voter promises half of what it says", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestV1PromiseOutlastsTheLease$",
		File: guardFile,
		Old:  "now.Add(p.Duration))", New: "now.Add(p.Duration/2))",
	},
	{
		Rule: "V1", Name: "a shorter probe shortens the promise", Pkg: rulesPkg, Test: "^TestV1ShorterProbe",
		File: guardFile,
		Old:  "until := max(g.promise.until, now.Add(p.Duration))", New: "until := now.Add(p.Duration)",
	},
	{
		Rule: "V1", Name: "a probe beyond MaxPromise is promised", Trace: true, Pkg: rulesPkg, Test: "^TestV1ProbeBeyondMaxPromise",
		File: guardFile,
		Old:  " || p.Duration > g.maxPromise {", New: " {",
	},
	{
		Rule: "V1", Name: "a deposed leader's probe is promised", Trace: true, Pkg: rulesPkg, Test: "^TestV1ProbeOfDeposedLeader",
		File: guardFile,
		Old:  "term < max(g.term, g.promise.term) ||", New: "",
	},
	{
		Rule: "V1", Name: "a later term of the same leader is taken for the earlier", Pkg: "./leaderlease/core", Test: "^TestGuardPromiseOnlyGrows$",
		File: guardFile,
		Old:  "if term > g.promise.term {", New: "if leader != g.promise.leader {",
	},
	{
		Rule: "V2", Name: "a grant goes to any sender of a heartbeat", Trace: true, Pkg: rulesPkg, Test: "^TestV2NoGrantToAnotherLeader$",
		File: guardFile,
		Old:  "term == 0 || leader != g.promise.leader || term != g.promise.term ||", New: "term == 0 ||",
	},
	{
		Rule: "V2", Name: "a grant of an earlier term is repeated", Pkg: rulesPkg, Test: "^TestV2NoGrantInAnotherTerm$",
		File: guardFile,
		Old:  "leader != g.promise.leader || term != g.promise.term ||", New: "leader != g.promise.leader ||",
	},
	{
		Rule: "V2", Name: "an answer without a promise is a grant", Pkg: rulesPkg, Test: "^TestV2AnAnswerIsNoGrant$",
		File: "leaderlease/outbound.go",
		Old:  "if g, ok := l.mu.guard.Grant(m.GetTo(), m.GetTerm(), now); ok {",
		New:  "if g, _ := l.mu.guard.Grant(m.GetTo(), m.GetTerm(), now); true {\n\t\tg.Sent, g.Duration, g.Reading, g.Incarnation = 1, 1, 1, 1",
	},
	{
		Rule: "V3", Name: "pre-votes pass the guard", Pkg: rulesPkg, Test: "^TestV3PreVoteIsKeptAway$",
		File: "leaderlease/inbound.go",
		Old:  "case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:", New: "case raftpb.MsgVote, raftpb.MsgTimeoutNow:",
	},
	{
		Rule: "V3", Name: "votes pass the guard", Sim: true, Pkg: rulesPkg, Test: "^TestV3VoteIsKeptAway$",
		File: "leaderlease/inbound.go",
		Old:  "case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:", New: "case raftpb.MsgPreVote, raftpb.MsgTimeoutNow:",
	},
	{
		Rule: "V3", Name: "MsgTimeoutNow passes the guard", Pkg: rulesPkg, Test: "^TestV3TimeoutNowIsKeptAway$",
		File: "leaderlease/inbound.go",
		Old:  "case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:", New: "case raftpb.MsgVote, raftpb.MsgPreVote:",
	},
	{
		Rule: "V3", Name: "votes for a bound node count", Pkg: rulesPkg, Test: "^TestV3VotesForABoundNodeAreKeptAway$",
		File: "leaderlease/inbound.go",
		Old:  "\t\treturn l.mayWin(m)\n", New: "\t\treturn true\n",
	},
	{
		Rule: "V3", Name: "the promise never ends", Pkg: rulesPkg, Test: "^TestV3FreeVoterVotes$",
		File: guardFile,
		Old:  "return now.Before(g.promise.until) || g.InRestartHold(now)", New: "return 0 < g.promise.until || g.InRestartHold(now)",
	},
	{
		Rule: "V9", Name: "requests for votes do not wait for the disk", Sim: true, Pkg: rulesPkg, Test: "^TestV9NoTermIsLedTwice$",
		File: "leaderlease/outbound.go",
		Old:  "	if !l.cfg.Raft.AsyncStorageWrites {\n", New: "	if true {\n",
	},
	{
		Rule: "V9", Name: "a request for a vote never leaves", Pkg: rulesPkg, Test: "^TestV9TheVoteLeavesWhenItsTermIsDurable$",
		File: votesFile,
		Old:  "write.Responses = append(slices.Clip(write.GetResponses()), proto.CloneOf(m))", New: "_ = proto.CloneOf(m)",
	},
	{
		Rule: "A1", Name: "an incarnation is the clock's first reading", Pkg: rulesPkg, Test: "^TestClockOfARestartedVoterIsTrusted$",
		File: "leaderlease/lease.go",
		Old:  "l.nonce.incarnation(), cfg.MaxPromise", New: "core.Incarnation(now), cfg.MaxPromise",
	},
	{
		Rule: "V4", Name: "no exit filter for granted votes", Pkg: rulesPkg, Test: "^TestV4VoteCastBeforeThePromiseDoesNotLeave$/^sync$",
		File: "leaderlease/outbound.go",
		Old:  "may := !l.mu.guard.Bound(now) || (", New: "may := true || (",
	},
	{
		Rule: "V4", Name: "votes inside MsgStorageAppend.Responses are not looked at", Pkg: rulesPkg, Test: "^TestV4VoteCastBeforeThePromiseDoesNotLeave$/^async$",
		File: "leaderlease/outbound.go",
		Old:  "\t\tl.storageAppendLocked(m, now)\n", New: "",
	},
	{
		Rule: "V4", Name: "guard on inbound only, own campaign free", Sim: true, Pkg: rulesPkg, Test: "^TestV4BoundVoterDoesNotCampaign$",
		File: "leaderlease/outbound.go",
		Old:  "\tif l.mu.guard.Bound(now) {\n\t\tl.stats.withhold", New: "\tif false {\n\t\tl.stats.withhold",
	},
	{
		Rule: "V4", Name: "a vote in Responses stays in copies of the Ready", Pkg: libPkg, Test: "^TestACopyOfTheReadyHoldsNoVoteInResponses$",
		File: "leaderlease/outbound.go",
		Old:  "\t\t\tcore.Void(m)\n", New: "",
	},
	{
		Rule: "V9", Name: "a request for a vote stays in copies of the Ready", Pkg: libPkg, Test: "^TestACopyOfTheReadyHoldsNoVoteBeforeItsTerm$",
		File: votesFile,
		Old:  "\t\tVoid(m)\n", New: "",
	},
	{
		Rule: "V5", Name: "alone-a-quorum self-election: the own vote counts", Pkg: rulesPkg, Test: "^TestV5OwnVoteDoesNotCountWhileBound$",
		File: "leaderlease/outbound.go",
		Old:  "may := !l.mu.guard.Bound(now) || (", New: "may := m.GetTo() == l.id() || !l.mu.guard.Bound(now) || (",
	},
	{
		Rule: "V5", Name: "ticks are not withheld", Pkg: rulesPkg, Test: "^TestV5TickIsWithheld$",
		File: "leaderlease/tick.go",
		Old:  "may := l.mu.role == raft.StateLeader || !l.soleVoterLocked() || !l.mu.guard.Bound(now)", New: "may := l.mu.role >= raft.StateFollower || now > 0",
	},
	{
		Rule: "V5", Name: "Ready does not hold back", Pkg: rulesPkg, Test: "^TestV5ReadyIsHeldBack$",
		File: "leaderlease/ready.go",
		Old:  "\tl.holdBack(rd, nil)\n", New: "",
	},
	{
		Rule: "V6", Name: "no restart hold", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestV6RestartHoldOutlastsTheLease$",
		File: "leaderlease/start.go",
		Old:  "s.hold = s.saved", New: "s.hold = 0",
	},
	{
		Rule: "V6", Name: "half a restart hold", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestV6RestartHoldOutlastsTheLease$",
		File: "leaderlease/start.go",
		Old:  "s.hold = s.saved", New: "s.hold = s.saved / 2",
	},
	{
		Rule: "V6", Name: "a held node grants nothing", Pkg: rulesPkg, Test: "^TestV6HeldVotersGrant$",
		File: guardFile,
		Old:  "leader == 0 || term == 0 || term <", New: "g.InRestartHold(now) || leader == 0 || term == 0 || term <",
	},
	{
		Rule: "V6", Name: "hold from the configured MaxPromise only", Pkg: rulesPkg, Test: "^TestV6HoldCoversThePromisesOfEarlierRuns$",
		File: "leaderlease/start.go",
		Old:  "s.saved = max(loaded, cfg.Duration)", New: "s.saved = cfg.MaxPromise",
	},
	{
		Rule: "V6", Name: "the longest promise is not saved", Trace: true, Pkg: rulesPkg, Test: "^TestV6HoldCoversThePromisesOfEarlierRuns$",
		File: "leaderlease/start.go",
		Old:  "if err := cfg.Promises.SaveLongestPromise(s.saved); err != nil {", New: "if err := error(nil); err != nil {",
	},
	{
		Rule: "V6", Name: "a promise that was read counts as durable", Pkg: libPkg, Test: "^TestNewSavesTheLongestPromise$",
		File: "leaderlease/start.go",
		Old:  "\t\tif err := cfg.Promises.SaveLongestPromise(s.saved); err != nil {",
		New:  "\t\tif loaded != s.saved {\n\t\t\terr = cfg.Promises.SaveLongestPromise(s.saved)\n\t\t}\n\t\tif err != nil {",
	},
	{
		Rule: "V6", Name: "a promise file that was read counts as durable", Pkg: libPkg, Test: "^TestWhatIsReadIsMadeDurable$",
		File: "leaderlease/promises.go",
		Old:  "\t\treturn on.syncDir(filepath.Dir(string(f)))", New: "\t\treturn nil",
	},
	{
		Rule: "V6", Name: "a promise file is written in place", Pkg: libPkg, Test: "^TestPromiseFileSurvivesACrash$",
		File: "leaderlease/promises.go",
		Old:  "next := string(f) + \".new\"", New: "next := string(f)",
	},
	{
		Rule: "V6", Name: "a promise file's new name is not made durable", Pkg: libPkg, Test: "^TestPromiseFileOrder$",
		File: "leaderlease/promises.go",
		Old:  "\t}\n\treturn on.syncDir(filepath.Dir(string(f)))", New: "\t}\n\treturn nil",
	},
	{
		Rule: "V6", Name: "a promise file is not synced", Pkg: libPkg, Test: "^TestThePromiseIsSynced$",
		File: "leaderlease/promises.go",
		Old:  "return errors.Join(w.Sync(), w.Close())", New: "return w.Close()",
	},
	{
		Rule: "V6", Name: "a truncated promise counts", Pkg: libPkg, Test: "^TestPromiseFileThatCannotBeUsed$",
		File: "leaderlease/promises.go",
		Old:  "!whole || d <= 0 {", New: "(!whole && d < 0) || d <= 0 {",
	},
	{
		Rule: "V6", Name: "the lease is turned off without waiting", Pkg: libPkg, Test: "^TestRetireWaitsForThePromises$",
		File: "leaderlease/promises.go",
		Old:  "time.NewTimer(longest)", New: "time.NewTimer(0)",
	},
	{
		Rule: "V6", Name: "a first start holds, too", Pkg: rulesPkg, Test: "^TestV6EmptyStorageDoesNotHold$",
		File: "leaderlease/start.go",
		Old:  "\tif s.restarted {", New: "\tif true {",
	},
	{
		Rule: "V6", Name: "a promise takes the place of a longer hold", Pkg: "./leaderlease/core", Test: "^TestGuardBound$",
		File: guardFile,
		Old:  "now.Before(g.promise.until) || g.InRestartHold(now) }", New: "now.Before(g.promise.until) || g.promise.until == 0 && g.InRestartHold(now) }",
	},
	{
		Rule: "V6", Name: "a release lifts the hold", Pkg: rulesPkg, Test: "^TestV6NoReleaseLiftsTheHold$",
		File: guardFile,
		Old:  "if rel != nil && g.covers(*rel) {", New: "if rel != nil && g.covers(*rel) {\n\t\tg.holdUntil = 0",
	},
	{
		Rule: "V6", Name: "first grant before the term is durable", Pkg: rulesPkg, Test: "^TestV6FirstGrantWaitsForTheDisk$",
		File: "leaderlease/outbound.go",
		Old:  "if l.mu.role != raft.StateFollower || !l.mu.durable {", New: "if l.mu.role != raft.StateFollower {",
	},
	{
		Rule: "V7", Name: "guard cleared when raft forgets its leader", Pkg: rulesPkg, Test: "^TestV7PromiseSurvivesAForgottenLeader$",
		File: "leaderlease/ready.go",
		Old:  "mu.role, mu.leader = rd.RaftState, rd.Lead",
		New:  "mu.role, mu.leader = rd.RaftState, rd.Lead\n\t\tif rd.Lead == raft.None {\n\t\t\tmu.guard = core.NewGuard(now, l.nonce.incarnation(), l.cfg.MaxPromise, 0)\n\t\t}",
	},
	{
		Rule: "V7", Name: "guard cleared by a higher term", Trace: true, Sim: true, Pkg: rulesPkg, Test: "^TestV7PromiseSurvivesAHigherTerm$",
		File: guardFile,
		Old:  "{ g.term = max(g.term, term) }", New: "{\n\tif term > g.term {\n\t\tg.promise.until = 0\n\t}\n\tg.term = max(g.term, term)\n}",
	},
}

const (
	corePkg = "./leaderlease/core"
	// savedFile keeps what storage holds about promises.
	savedFile = "leaderlease/core/guard.go"
)

// savedRules take apart that a restart holds for what was promised (V6), where that is
// more or less than what is asked for now.
var savedRules = []Mutant{
	{
		Rule: "V6", Name: "a longer promise is made before it is saved", Pkg: corePkg, Test: "^TestALongerPromiseWaitsForTheDisk$",
		File: savedFile,
		Old:  "\treturn d <= s.limit\n", New: "\treturn d <= s.longest\n",
	},
	{
		Rule: "V6", Name: "longer promises are made while a shorter one is saved", Pkg: corePkg, Test: "^TestWhatIsSavedFallsWithTheEndOfTheHold$",
		File: savedFile,
		Old:  "\ts.limit = min(s.limit, s.longest) // before", New: "\t// before",
	},
	{
		Rule: "V6", Name: "what is saved falls below the promises of this process", Trace: true, Pkg: corePkg, Test: "^TestWhatIsSavedFallsWithTheEndOfTheHold$",
		File: savedFile,
		Old:  "\ts.longest = max(s.longest, d)\n", New: "\tif d > s.limit {\n\t\ts.longest = max(s.longest, d)\n\t}\n",
	},
	{
		Rule: "V6", Name: "what is saved falls in the restart hold", Trace: true, Pkg: corePkg, Test: "^TestWhatIsSavedFallsWithTheEndOfTheHold$",
		File: savedFile,
		Old:  "(falls && g.InRestartHold(now))", New: "(falls && false)",
	},
	{
		Rule: "V6", Name: "what is saved never falls", Pkg: rulesPkg, Test: "^TestV6TheSavedPromiseFollowsThePromises$",
		File: savedFile,
		Old:  "(falls && g.InRestartHold(now))", New: "falls",
	},
	{
		Rule: "V6", Name: "a memory from before a save is trusted", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: savedFile,
		Old:  "min(s.limit, s.longest), max", New: "s.limit, max",
	},
	{
		Rule: "V6", Name: "a memory from before promises tells how long they are", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: savedFile,
		Old:  ", max(s.longest, hold)", New: ", s.longest",
	},
	{
		Rule: "V6", Name: "after a disruption what is saved does not cover earlier processes", Pkg: corePkg, Test: "^TestADisruptedGuardLowersNothingThatMayBeOwed$",
		File: guardFile,
		Old:  "g.saved.startOver(hold)", New: "g.saved.startOver(g.maxPromise)",
	},
	{
		Rule: "V6", Name: "after a disruption the hold is what was saved at the start", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: guardFile,
		Old:  "g.holdUntil = now.Add(hold)", New: "g.holdUntil = now.Add(g.holdFor)",
	},
	{
		Rule: "V6", Name: "a save that failed counts", Pkg: libPkg, Test: "^TestASaveThatFailsIsSaidOnce$",
		File: "leaderlease/promises.go",
		Old:  "\tif err == nil {", New: "\tif true {",
	},
	{
		Rule: "V6", Name: "two saves at a time", Pkg: libPkg, Test: "^TestALongerPromiseIsSavedByTheWay$",
		File: "leaderlease/promises.go",
		Old:  "if s.underWay || l.mu.closed {", New: "if l.mu.closed {",
	},
	{
		Rule: "V6", Name: "a save outlives Close", Pkg: libPkg, Test: "^TestCloseWaitsForASave$",
		File: "leaderlease/lease.go",
		Old:  "\tl.saves.Wait()\n", New: "",
	},
	{
		Rule: "V6", Name: "processes that saved nothing have promised nothing long", Pkg: libPkg, Test: "^TestTheHoldIsWhatWasSaved$",
		File: "leaderlease/start.go",
		Old:  "if loaded > 0 || !s.restarted {", New: "if true {",
	},
}
