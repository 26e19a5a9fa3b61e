package main

// planted are bugs that no directed test is named for. The simulator must find them.
var planted = []Mutant{
	{
		Rule: "V2", Name: "any MsgAppResp renews at receipt", Sim: true,
		File: "leaderlease/inbound.go",
		Old:  "	case raftpb.MsgHeartbeatResp:\n		l.count(m)",
		New: `	case raftpb.MsgAppResp:
		l.mu.Lock()
		now := l.nowLocked()
		l.mu.lease.Count(m.GetFrom(), m.GetTerm(), core.Grant{Sent: now, Duration: l.cfg.Duration}, now)
		l.publishLocked(now)
		l.mu.Unlock()
	case raftpb.MsgHeartbeatResp:
		l.count(m)`,
	},
	{
		Rule: "V3", Name: "no vote guard", Sim: true,
		File: "leaderlease/core/guard.go",
		Old:  "func (g *Guard) Bound(now Instant) bool { return now.Before(g.promise.until) || g.InRestartHold(now) }",
		New:  "func (g *Guard) Bound(now Instant) bool { return g.InRestartHold(now) }",
	},
	{
		Rule: "V4", Name: "no exit filter", Trace: true, Sim: true,
		File: "leaderlease/outbound.go",
		Old:  "return !l.stampOrWithholdLocked(m, now) })", New: "return !l.stampOrWithholdLocked(m, now) && false })",
		More: []Edit{{"leaderlease/outbound.go", "return vote && !l.voteLocked(r, now)", "return vote && !l.voteLocked(r, now) && false"}},
	},
	{
		Rule: "V1", Name: "voter uses the leader's timestamp", Trace: true, Sim: true,
		File: "leaderlease/core/guard.go",
		Old:  "until := max(g.promise.until, now.Add(p.Duration))",
		New:  "until := max(g.promise.until, p.Sent.Add(p.Duration))",
	},
	{
		Rule: "V1", Name: "grant leaves before the promise is made", Sim: true,
		File: "leaderlease/inbound.go",
		Old:  "	made := l.mu.guard.Promise(m.GetFrom(), m.GetTerm(), p, from, now)\n",
		New: `	// The promise of this probe takes effect with the next one.
	late := lateProbe[l]
	lateProbe[l] = p
	l.mu.guard.Echo(m.GetFrom(), m.GetTerm(), p)
	made := late.Sent != 0 && l.mu.guard.Promise(m.GetFrom(), m.GetTerm(), late, from, now)
`,
		More: []Edit{
			{"leaderlease/inbound.go", "// promise answers a probe before raft", "var lateProbe = map[*Lease]core.Probe{}\n\n// promise answers a probe before raft"},
			{"leaderlease/core/guard.go", "// Grant returns what", `// Echo is planted: the grant names a probe that nothing was promised for.
func (g *Guard) Echo(leader, term uint64, p Probe) {
	if term >= max(g.term, g.promise.term) {
		g.echo.leader, g.echo.term, g.echo.sent, g.echo.duration = leader, term, p.Sent, p.Duration
	}
}

// Grant returns what`},
			{"leaderlease/core/guard.go", "	// owed is the end of the newest promise", "	echo struct {\n		leader, term uint64\n		sent         Instant\n		duration     time.Duration\n	}\n	// owed is the newest until"},
			{"leaderlease/core/guard.go", "	if term == 0 || leader != g.promise.leader ||", "	if e := g.echo; e.term == term && e.leader == leader && now.Valid() {\n		return Grant{Sent: e.sent, Duration: e.duration, Reading: now, Incarnation: g.incarnation}, true\n	}\n	if term == 0 || leader != g.promise.leader ||"},
		},
	},
	{
		Rule: "L3", Name: "n/2 as quorum", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "end := uint64(cfg.CommittedIndex(promised))",
		New: `var got []uint64
	for id := range cfg[0] {
		i, _ := promised.AckedIndex(id)
		at := len(got)
		for at > 0 && got[at-1] < uint64(i) {
			at--
		}
		got = append(got[:at:at], append([]uint64{uint64(i)}, got[at:]...)...)
	}
	end := got[max(len(got)/2, 1)-1]`,
	},
	{
		Rule: "L2", Name: "duplicate grant counted twice", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	suspect := p.rate.suspect\n",
		New:  "	if p.promised == g.Sent.Add(g.Duration) {\n		for i := range l.peers {\n			if &l.peers[i] != p {\n				p = &l.peers[i]\n				break\n			}\n		}\n	}\n	suspect := p.rate.suspect\n",
	},
	{
		Rule: "L5", Name: "voters updated after Advance", Trace: true, Sim: true,
		File: "leaderlease/confchange.go", Old: "	if use {\n		l.setVotersLocked(cs, now)\n	}", New: "	_ = use\n	lateConf[l] = append(lateConf[l], cs)",
		More: []Edit{
			{"leaderlease/confchange.go", "func (l *Lease) setVotersLocked(", "var lateConf = map[*Lease][]*raftpb.ConfState{}\n\nfunc (l *Lease) setVotersLocked("},
			{"leaderlease/tick.go", "	done := l.publishLocked(now)", "	for _, cs := range lateConf[l] {\n		l.setVotersLocked(cs, now)\n	}\n	delete(lateConf, l)\n	done := l.publishLocked(now)"},
		},
	},
	{
		Rule: "L2", Name: "grant credited to the newest round", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	if g.Sent <= l.after ||", New: "	g.Sent = max(g.Sent, l.probed)\n	if g.Sent <= l.after ||",
	},
	{
		Rule: "L6", Name: "lease resumed after an abort without a release", Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	l.Invalidate(now)\n	return Release{Term: l.term, At: l.after}",
		New:  "	return Release{Term: l.term, At: l.transferUntil}",
	},
	{
		Rule: "§6", Name: "value fetched before the check", Sim: true,
		File: "leaderlease/leasetest/client.go",
		Old:  "			run := n.run\n			n.lease.StartRead(ctx, mode, func(r",
		New:  "			run, early := n.run, n.Version(key)\n			n.lease.StartRead(ctx, mode, func(r",
		More: []Edit{{"leaderlease/leasetest/client.go", "				done(n.Version(key), r.Path, err)", "				done(early, r.Path, err)"}},
	},
	{
		Rule: "§6", Name: "now taken from the last tick", Sim: true,
		File: "leaderlease/read.go",
		Old:  "	now := l.clock.Now()\n	v := l.view.Load()\n	if v.Check(now)",
		New:  "	now := l.mu.last\n	v := l.view.Load()\n	if v.Check(now)",
	},
	{
		// Alone, each of these two is masked by the other (docs/adr/0004).
		Rule: "V5", Name: "a node that is alone a quorum elects itself, ConfPending off", Sim: true,
		File: "leaderlease/confchange.go",
		Old:  "	return l.mu.conf.alone || l.mu.conf.pending() || l.mu.misuse != nil",
		New:  "	return false",
		More: []Edit{
			{"leaderlease/outbound.go", "return vote && !l.voteLocked(r, now)", "return vote && r.GetTo() != l.id() && !l.voteLocked(r, now)"},
			{"leaderlease/lease.go", "	mu.lease.SetConfPending(pending)", "	mu.lease.SetConfPending(false)"},
			{"leaderlease/ready.go", "counts := rd.RaftState == raft.StateCandidate || l.maybeAloneLocked()", "counts := false"},
		},
	},
}

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
	layer("V4", "a promise that was not granted does not bind a candidate", "outbound.go",
		"	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		"	if l.mu.guard.Owes(now) {\n		l.stats.withhold(m.GetType(), false)"),
	layer("V4", "only followers are bound, not candidates", "outbound.go",
		"	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		"	if l.mu.role != raft.StateCandidate && l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)"),
	layer("V4", "a bound candidate is freed too early by the margin", "outbound.go",
		"	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)",
		"	if l.mu.guard.Bound(now.Add(l.cfg.MaxClockSkew)) {\n		l.stats.withhold(m.GetType(), false)"),
	layer("V4", "a candidate drops its promise", "ready.go",
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
	layer("V3", "votes count for a node before its promise is granted", "inbound.go",
		"	bound := l.mu.guard.Bound(now)\n", "	bound := l.mu.guard.Owes(now)\n"),
	layer("V4", "CanCampaign goes by what has been granted", "wrap.go",
		"	case l.mu.guard.Bound(now):", "	case l.mu.guard.Owes(now):"),
	layer("V5", "a node that is alone ticks as long as no grant has left", "tick.go",
		"!l.soleVoterLocked() || !l.mu.guard.Bound(now)", "!l.soleVoterLocked() || !l.mu.guard.Owes(now)"),
	layer("V5", "Ready holds back what no grant forbids", "ready.go",
		"return counts && l.mu.guard.Owes(now)", "return counts && l.mu.guard.Bound(now)"),
	layer("V5", "Ready holds back no own vote", "ready.go",
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
		Rule: "V2", Name: "nothing is granted in the first term", Pkg: "./leaderlease/core", Test: "^TestFirstTerm$",
		File: guardFile,
		Old:  "	if term == 0 || leader != g.promise.leader ||", New: "	if term == 1 || leader != g.promise.leader ||",
	},
	{
		Rule: "A1", Name: "a suspected clock is trusted one unit too early", Pkg: "./leaderlease/core", Test: "^TestRateWindowEdges$",
		File: "leaderlease/core/peer.go",
		Old:  "window := s.received.Sub(w.anchor.received)", New: "window := s.received.Sub(w.anchor.received) + 1",
	},
}

const (
	proofFile = "leaderlease/recovercommit.go"
	diskFile  = "leaderlease/leasetest/disk.go"
)

// proofs are bugs in the commit index that a log proves, and in the simulator that has
// to find them.
var proofs = []Mutant{
	{
		Rule: "proof", Name: "a log that holds two changes proves nothing", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: proofFile, Sim: true,
		Old: "\t\t\tproven = change\n", New: "\t\t\tproven = min(change, 0)\n",
	},
	{
		Rule: "proof", Name: "a change in the log proves itself", Pkg: simPkg, Test: "^TestRaftAlone$",
		File: proofFile, Sim: true,
		Old: "\t\t\tproven = change\n", New: "\t\t\tproven = max(change, e.GetIndex())\n",
	},
	{
		Rule: "proof", Name: "a disk of the simulator does not tear", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: diskFile,
		Old:  "\tif d.kind == AtomicBatches {\n", New: "\tif d.kind <= AtomicBatches {\n",
	},
}
