package main

const layersTest = "^TestEachLayerIsShutWhileBound$"

// layer is a bug in a file of package leaderlease that leaves a bound voter one layer less.
func layer(rule, name, file, old, replacement string) Mutant {
	return Mutant{
		Rule: rule, Name: name, Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/" + file, Old: old, New: replacement,
	}
}

// layers are single layers of the voter's half taken away, each of which others hide
// in most schedules.
var layers = []Mutant{
	layer("V4", "what has not been granted frees a candidate", "outbound.go",
		"	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		"	if l.mu.guard.Owes(now) {\n		l.stats.withhold(m.GetType(), false)"),
	layer("V4", "a candidate is free, only followers are bound", "outbound.go",
		"	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		"	if l.mu.role != raft.StateCandidate && l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)"),
	layer("V4", "a bound candidate takes its clock for slow, and is freed by the margin too early", "outbound.go",
		"	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		"	if l.mu.guard.Bound(now.Add(l.cfg.MaxClockSkew)) {\n		l.stats.withhold(m.GetType(), false)"),
	layer("V4", "whoever campaigns forgets what it promised", "ready.go",
		"		mu.role, mu.leader = rd.RaftState, rd.Lead\n",
		"		mu.role, mu.leader = rd.RaftState, rd.Lead\n		if mu.role == raft.StateCandidate {\n			mu.guard.Admit(&core.Release{Term: mu.term + 1, At: 1}, now)\n		}\n"),
	layer("V4", "a vote leaves as long as no grant has", "outbound.go",
		"may := !l.mu.guard.Bound(now) || (", "may := !l.mu.guard.Owes(now) || ("),
	layer("V4", "the outbound guard alone is missing, the storage thread's is there", "outbound.go",
		"		return l.voteLocked(m, now)\n", "		return true\n"),
	layer("V4", "the storage thread's guard alone is missing", "outbound.go",
		"return vote && !l.voteLocked(r, now)", "return vote && !l.voteLocked(r, now) && false"),
	layer("V5", "a bound node's pre-vote for itself counts", "outbound.go",
		"m.GetType() == raftpb.MsgPreVoteResp && m.GetTo() != l.id()", "m.GetType() == raftpb.MsgPreVoteResp"),
	layer("V3", "the inbound guard is for followers", "inbound.go",
		"may := l.mu.guard.Admit(rel, now) &&",
		"may := (l.mu.guard.Admit(rel, now) || l.mu.role != raft.StateFollower) &&"),
	layer("V3", "votes count for a node whose promise has not been granted", "inbound.go",
		"	bound := l.mu.guard.Bound(now)\n", "	bound := l.mu.guard.Owes(now)\n"),
	layer("V4", "CanCampaign goes by what has been granted", "wrap.go",
		"	case l.mu.guard.Bound(now):", "	case l.mu.guard.Owes(now):"),
	layer("V5", "a node that is alone ticks as long as no grant has left", "tick.go",
		"!l.soleVoterLocked() || !l.mu.guard.Bound(now)", "!l.soleVoterLocked() || !l.mu.guard.Owes(now)"),
	layer("V5", "Ready holds back what no grant forbids", "ready.go",
		"return counts && l.mu.guard.Owes(now)", "return counts && l.mu.guard.Bound(now)"),
	layer("V5", "Ready holds back nobody's own vote", "ready.go",
		"return counts && l.mu.guard.Owes(now)", "return counts && now < 0"),
	{
		Rule: "§6", Name: "reads are reported with the lease locked", Pkg: "./leaderlease", Test: "^TestCallbacksFindTheLockFree$",
		File: "leaderlease/inbound.go",
		Old:  "	done := l.publishLocked(now)\n	l.mu.Unlock()\n	done.report()\n",
		New:  "	done := l.publishLocked(now)\n	done.report()\n	l.mu.Unlock()\n",
	},
	{
		Rule: "§6", Name: "Incoming keeps the lock", Pkg: "./leaderlease", Test: "^TestEveryMethodLeavesTheLockFree$",
		File: "leaderlease/inbound.go",
		Old:  "	defer l.mu.Unlock()\n	now := l.nowLocked()\n	bound :=", New: "	now := l.nowLocked()\n	bound :=",
	},
	{
		Rule: "§6", Name: "a reader outrun by a renewal keeps its old reading", Pkg: "./leaderlease", Test: "^TestAReaderThatWasOutrun",
		File: "leaderlease/read.go",
		Old:  "		now = l.clock.Now()\n		v = l.view.Load()\n", New: "		v = l.view.Load()\n",
	},
	{
		Rule: "L5", Name: "a ConfState told too often fails the rounds, too", Pkg: "./leaderlease", Test: "^TestMisuseOfConfStateLeavesRounds$",
		File: "leaderlease/conf.go",
		Old:  "l.misuse(broken, false)", New: "l.misuse(broken, true)",
	},
	{
		Rule: "V2", Name: "nothing is granted in the first term", Pkg: "./leaderlease/core", Test: "^TestFirstTerm$",
		File: guardFile,
		Old:  "	if term == 0 || leader != g.promise.leader ||", New: "	if term == 1 || leader != g.promise.leader ||",
	},
	{
		Rule: "A1", Name: "a doubted clock is trusted one unit too early", Pkg: "./leaderlease/core", Test: "^TestRateWindowEdges$",
		File: "leaderlease/core/peer.go",
		Old:  "window := s.received.Sub(w.anchor.received)", New: "window := s.received.Sub(w.anchor.received) + 1",
	},
}
