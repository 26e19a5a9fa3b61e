package main

const layersTest = "^TestEachLayerIsShutWhileBound$"

// layers are single layers of the voter's half taken away, each of which others hide
// in most schedules.
var layers = []Mutant{
	{
		Rule: "V4", Name: "what has not been granted frees a candidate", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/outbound.go",
		Old:  "	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		New:  "	if l.mu.guard.Owes(now) {\n		l.stats.withhold(m.GetType(), false)",
	},
	{
		Rule: "V4", Name: "a candidate is free, only followers are bound", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/outbound.go",
		Old:  "	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		New:  "	if l.mu.role != raft.StateCandidate && l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
	},
	{
		Rule: "V4", Name: "a bound candidate takes its clock for slow, and is freed by the margin too early", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/outbound.go",
		Old:  "	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		New:  "	if l.mu.guard.Bound(now.Add(l.cfg.MaxClockSkew)) {\n		l.stats.withhold(m.GetType(), false)",
	},
	{
		Rule: "V4", Name: "whoever campaigns forgets what it promised", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/ready.go",
		Old:  "		mu.role, mu.leader = rd.RaftState, rd.Lead\n",
		New:  "		mu.role, mu.leader = rd.RaftState, rd.Lead\n		if mu.role == raft.StateCandidate {\n			mu.guard.Admit(&core.Release{Term: mu.term + 1, At: 1}, now)\n		}\n",
	},
	{
		Rule: "V4", Name: "a vote leaves as long as no grant has", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/outbound.go",
		Old:  "if m.GetReject() || !l.mu.guard.Bound(now) {", New: "if m.GetReject() || !l.mu.guard.Owes(now) {",
	},
	{
		Rule: "V4", Name: "the outbound guard alone is missing, the storage thread's is there", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/outbound.go",
		Old:  "		return l.voteLocked(m, now)\n", New: "		return true\n",
	},
	{
		Rule: "V4", Name: "the storage thread's guard alone is missing", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/outbound.go",
		Old:  "return vote && !l.voteLocked(r, now)", New: "return vote && !l.voteLocked(r, now) && false",
	},
	{
		Rule: "V5", Name: "a bound node's pre-vote for itself counts", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/outbound.go",
		Old:  "m.GetType() == raftpb.MsgPreVoteResp && m.GetTo() != l.id()", New: "m.GetType() == raftpb.MsgPreVoteResp",
	},
	{
		Rule: "V3", Name: "the inbound guard is for followers", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/inbound.go",
		Old:  "if !l.mu.guard.Admit(rel, l.nowLocked()) ||", New: "if !l.mu.guard.Admit(rel, l.nowLocked()) && l.mu.role == raft.StateFollower ||",
	},
	{
		Rule: "V3", Name: "votes count for a node whose promise has not been granted", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/inbound.go",
		Old:  "	if l.mu.guard.Bound(l.nowLocked()) {", New: "	if l.mu.guard.Owes(l.nowLocked()) {",
	},
	{
		Rule: "V4", Name: "MayCampaign goes by what has been granted", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/wrap.go",
		Old:  "	case l.mu.guard.Bound(now):", New: "	case l.mu.guard.Owes(now):",
	},
	{
		Rule: "V5", Name: "a node that is alone ticks as long as no grant has left", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/tick.go",
		Old:  "!l.aloneLocked() || !l.mu.guard.Bound(now)", New: "!l.aloneLocked() || !l.mu.guard.Owes(now)",
	},
	{
		Rule: "V5", Name: "Ready holds back what no grant forbids", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/ready.go",
		Old:  "if !counts || !l.mu.guard.Owes(now) {", New: "if !counts || !l.mu.guard.Bound(now) {",
	},
	{
		Rule: "V5", Name: "Ready holds back nobody's own vote", Pkg: "./leaderlease", Test: layersTest,
		File: "leaderlease/ready.go",
		Old:  "if !counts || !l.mu.guard.Owes(now) {", New: "if _ = counts; true {",
	},
	{
		Rule: "§6", Name: "reads are reported with the lease locked", Pkg: "./leaderlease", Test: "^TestCallbacksFindTheLockFree$",
		File: "leaderlease/inbound.go",
		Old:  "	done := l.publishLocked(now)\n	l.mu.Unlock()\n	done.report()\n",
		New:  "	done := l.publishLocked(now)\n	done.report()\n	l.mu.Unlock()\n",
	},
	{
		Rule: "§6", Name: "Incoming keeps the lock", Pkg: "./leaderlease", Test: "^TestEveryMethodLeavesTheLockFree$",
		File: "leaderlease/inbound.go",
		Old:  "	defer l.mu.Unlock()\n	if l.mu.guard.Bound(l.nowLocked()) {", New: "	if l.mu.guard.Bound(l.nowLocked()) {",
	},
	{
		Rule: "§6", Name: "a reader outrun by a renewal keeps its old reading", Pkg: "./leaderlease", Test: "^TestAReaderThatWasOutrun",
		File: "leaderlease/tryread.go",
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
		File: "leaderlease/core/rate.go",
		Old:  "window := s.received.Sub(w.anchor.received)", New: "window := s.received.Sub(w.anchor.received) + 1",
	},
}
