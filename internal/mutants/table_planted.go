package main

// planted is the list of bugs that docs/reliability.md reports on. The
// simulator must find them; directed tests for the same rules are in rules.
var planted = []Mutant{
	{
		Rule: "L2", Name: "lease measured from the arrival of the answer", Sim: true,
		File: "leaderlease/core/peer.go",
		Old:  "until := g.Sent.Add(min(g.Duration, params.Duration))",
		New:  "until := now.Add(min(g.Duration, params.Duration))",
	},
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
		Rule: "A1", Name: "margin 0", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "return l.end.Add(-l.p.MaxClockSkew)", New: "return l.end",
	},
	{
		Rule: "A1", Name: "margin with the wrong sign", Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "return l.end.Add(-l.p.MaxClockSkew)", New: "return l.end.Add(l.p.MaxClockSkew)",
	},
	{
		Rule: "V6", Name: "no restart hold", Trace: true, Sim: true,
		File: "leaderlease/start.go", Old: "s.hold = s.saved", New: "s.hold = 0",
	},
	{
		Rule: "V6", Name: "half a restart hold", Trace: true, Sim: true,
		File: "leaderlease/start.go", Old: "s.hold = s.saved", New: "s.hold = s.saved / 2",
	},
	{
		Rule: "V9", Name: "requests for votes leave before their term is durable", Sim: true,
		File: "leaderlease/outbound.go",
		Old:  "	if !l.cfg.Raft.AsyncStorageWrites {\n", New: "	if true {\n",
	},
	{
		Rule: "V3", Name: "no vote guard", Sim: true,
		File: "leaderlease/core/guard.go",
		Old:  "func (g *Guard) Bound(now Instant) bool { return now.Before(g.promise.until) || g.Held(now) }",
		New:  "func (g *Guard) Bound(now Instant) bool { return g.Held(now) }",
	},
	{
		Rule: "V4", Name: "guard on inbound only, own campaign free", Sim: true,
		File: "leaderlease/outbound.go",
		Old:  "	if l.mu.guard.Bound(now) {\n		l.stats.withhold(m.GetType(), false)\n", New: "	if false {\n",
	},
	{
		Rule: "V3", Name: "MsgVote passes the guard, MsgPreVote does not", Sim: true,
		File: "leaderlease/inbound.go",
		Old:  "case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:\n		return l.admit(m)",
		New:  "case raftpb.MsgPreVote, raftpb.MsgTimeoutNow:\n		return l.admit(m)",
	},
	{
		Rule: "V4", Name: "no exit filter", Trace: true, Sim: true,
		File: "leaderlease/outbound.go",
		Old:  "return !l.mayLeaveLocked(m, now) })", New: "return !l.mayLeaveLocked(m, now) && false })",
		More: []Edit{{"leaderlease/outbound.go", "return vote && !l.voteLocked(r, now)", "return vote && !l.voteLocked(r, now) && false"}},
	},
	{
		Rule: "V7", Name: "guard cleared by a higher term", Sim: true,
		File: "leaderlease/core/guard.go",
		Old:  "func (g *Guard) SetTerm(term uint64) {",
		New:  "func (g *Guard) SetTerm(term uint64) {\n	if term > g.term {\n		g.promise.until = 0\n	}\n",
	},
	{
		Rule: "V1", Name: "voter promises less than it says", Trace: true, Sim: true,
		File: "leaderlease/core/guard.go",
		Old:  "until := max(g.promise.until, now.Add(p.Duration))",
		New:  "until := max(g.promise.until, now.Add(p.Duration/2))",
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
			{"leaderlease/core/guard.go", "	// owed is the newest until", "	echo struct {\n		leader, term uint64\n		sent         Instant\n		duration     time.Duration\n	}\n	// owed is the newest until"},
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
		Rule: "L3", Name: "learner grants count", Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "return quorum.JointConfig{majority(cs.GetVoters()), majority(cs.GetVotersOutgoing())}",
		New:  "return quorum.JointConfig{majority(append(append([]uint64{}, cs.GetVoters()...), cs.GetLearners()...)), majority(cs.GetVotersOutgoing())}",
	},
	{
		Rule: "L2", Name: "duplicate grant counted twice", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	suspect := p.rate.suspect\n",
		New:  "	if p.promised == g.Sent.Add(g.Duration) {\n		for i := range l.peers {\n			if &l.peers[i] != p {\n				p = &l.peers[i]\n				break\n			}\n		}\n	}\n	suspect := p.rate.suspect\n",
	},
	{
		Rule: "L3", Name: "demoted leader counts itself",
		File: "leaderlease/core/lease.go",
		Old:  "	case !l.IsVoter():\n		return NotVoter\n", New: "",
		Equivalent: "raft's quorum package asks for voters of the configuration only, so a leader that is none has no vote to count; and StepDownOnRemoval, which Validate demands, ends its reign in the same Ready",
	},
	{
		Rule: "L5", Name: "initial configuration for ever", Trace: true, Sim: true,
		File: "leaderlease/conf.go", Old: "	if use {\n		l.setVotersLocked(cs, now)\n	}", New: "	_ = use",
	},
	{
		Rule: "L3", Name: "only the incoming half of a joint configuration", Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "return quorum.JointConfig{majority(cs.GetVoters()), majority(cs.GetVotersOutgoing())}",
		New:  "return quorum.JointConfig{majority(cs.GetVoters()), nil}",
	},
	{
		Rule: "L5", Name: "voters updated after Advance", Trace: true, Sim: true,
		File: "leaderlease/conf.go", Old: "	if use {\n		l.setVotersLocked(cs, now)\n	}", New: "	_ = use\n	lateConf[l] = append(lateConf[l], cs)",
		More: []Edit{
			{"leaderlease/conf.go", "func (l *Lease) setVotersLocked(", "var lateConf = map[*Lease][]*raftpb.ConfState{}\n\nfunc (l *Lease) setVotersLocked("},
			{"leaderlease/tick.go", "	done := l.publishLocked(now)", "	for _, cs := range lateConf[l] {\n		l.setVotersLocked(cs, now)\n	}\n	delete(lateConf, l)\n	done := l.publishLocked(now)"},
		},
	},
	{
		Rule: "L2", Name: "grant credited to the newest round", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	if g.Sent <= l.after ||", New: "	g.Sent = max(g.Sent, l.probed)\n	if g.Sent <= l.after ||",
	},
	{
		Rule: "L6", Name: "lease kept in a transfer", Trace: true, Sim: true,
		File: "leaderlease/release.go",
		Old:  "	if r := l.mu.lease.Release(max(now, l.mu.last)); r.At > 0 {",
		New:  "	if r := (core.Release{Term: m.GetTerm(), At: now}); r.At > 0 {",
	},
	{
		Rule: "L6", Name: "lease resumed after an abort without a release", Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	l.Invalidate(now)\n	return Release{Term: l.term, At: l.after}",
		New:  "	return Release{Term: l.term, At: l.transferUntil}",
	},
	{
		Rule: "L7", Name: "role not checked after a step-down", Trace: true, Sim: true,
		File: "leaderlease/ready.go",
		Old:  "		mu.ownIndex = 0\n		mu.lease.StepDown()\n		return",
		New:  "		mu.ownIndex = 0\n		return",
	},
	{
		Rule: "L4", Name: "read before an own-term commit", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	case !l.ownCommit:\n		return NoOwnTermCommit\n", New: "",
	},
	{
		Rule: "§6", Name: "applied index not awaited", Sim: true,
		File: "leaderlease/read.go",
		Old:  "	if l.applied.Load() < index {\n		return ReadResult{}, false\n	}\n", New: "",
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
		Rule: "L3", Name: "single-voter lease kept while growing", Trace: true, Sim: true,
		File: "leaderlease/core/lease.go",
		Old:  "	l.peers = kept\n	l.noteClocks()\n	l.recompute()",
		New:  "	l.peers = kept\n	l.noteClocks()\n	if l.end != Forever {\n		l.recompute()\n	}",
	},
	{
		// Alone, each of these two is masked by the other (docs/adr/0004).
		Rule: "V5", Name: "a node that is alone a quorum elects itself, ConfPending off", Sim: true,
		File: "leaderlease/conf.go",
		Old:  "	return l.mu.conf.alone || l.mu.conf.pending() || l.mu.misuse != nil",
		New:  "	return false",
		More: []Edit{
			{"leaderlease/outbound.go", "return vote && !l.voteLocked(r, now)", "return vote && r.GetTo() != l.id() && !l.voteLocked(r, now)"},
			{"leaderlease/lease.go", "	mu.lease.SetConfPending(pending)", "	mu.lease.SetConfPending(false)"},
			{"leaderlease/ready.go", "counts := rd.RaftState == raft.StateCandidate || l.aloneLocked()", "counts := false"},
		},
	},
}
