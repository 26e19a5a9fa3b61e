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

const (
	raftsimPkg = "./internal/raftsim"
	proofFile  = "leaderlease/recovercommit.go"
	diskFile   = "leaderlease/leasetest/disk.go"
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
		Rule: "proof", Name: "a log that holds two changes proves nothing to bare RawNodes", Pkg: raftsimPkg, Test: "^TestTornChangesElectASecondLeader$",
		File: proofFile,
		Old:  "\t\t\tproven = change\n", New: "\t\t\tproven = min(change, 0)\n",
	},
	{
		Rule: "proof", Name: "a change in the log proves itself", Pkg: raftsimPkg, Test: "^TestSafety$",
		File: proofFile, Sim: true,
		Old: "\t\t\tproven = change\n", New: "\t\t\tproven = max(change, e.GetIndex())\n",
	},
	{
		Rule: "proof", Name: "a disk of the simulator does not tear", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: diskFile,
		Old:  "\tif d.kind == AtomicBatches {\n", New: "\tif d.kind <= AtomicBatches {\n",
	},
	{
		Rule: "proof", Name: "a disk of the simulator syncs each commit index", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: diskFile,
		Old:  "if raft.MustSync(hard, d.durable, len(entries)) {", New: "if true {",
	},
	{
		Rule: "proof", Name: "a node of the simulator goes by its hard state alone", Pkg: rulesPkg, Test: "^TestTheLogProvesThatChangesAreCommitted$",
		File: "leaderlease/leasetest/checkpoint.go",
		Old:  "\tif n.Options.HardStateAlone {\n", New: "\tif n.Options.HardStateAlone || true {\n",
	},
}

// readPaths are bugs of lease reads that tests of kvnode find, or that concern reads of followers.
var readPaths = []Mutant{
	{
		Rule: "reads", Name: "an answer to a follower's read waits for its raft loop", Pkg: nodePkg, Test: "^TestAForwardedReadTakesNoTurnOfALoop$",
		File: "leaderlease/inbound.go",
		Old:  "	case err == nil && (byRound || !quorum):\n		return !l.answerWaiting(m)\n", New: "	case err == nil && (byRound || !quorum):\n		return true\n",
	},
	{
		Rule: "reads", Name: "a term is kept away from raft that it may learn from an answer", Pkg: libPkg, Test: "^TestAnswersAreTakenWhereTheyArrive$",
		File: "leaderlease/inbound.go",
		Old:  "&& m.GetTerm() == l.mu.term && len", New: "&& len",
	},
	{
		Rule: "reads", Name: "an answer reaches one that does not follow", Pkg: libPkg, Test: "^TestAnswersAreTakenWhereTheyArrive$",
		File: "leaderlease/inbound.go",
		Old:  "mine := l.mu.role == raft.StateFollower && ", New: "mine := ",
	},
	{
		Rule: "reads", Name: "a read under the lease does not wait until what it must see is applied", Pkg: nodePkg, Test: "^TestSeeds$",
		File: "leaderlease/read.go",
		Old:  "if l.applied.Load() < index {\n\t\treturn ReadResult{}, false", New: "if false {\n\t\treturn ReadResult{}, false",
	},
	{
		Rule: "reads", Name: "a lease serves reads when it has expired", Pkg: nodePkg, Test: "^TestSeeds$",
		File: "leaderlease/read.go",
		Old:  "\tif s != core.Valid {\n\t\treturn ReadResult{}, false\n\t}\n\tindex", New: "\tif s != core.Valid && s != core.Expired {\n\t\treturn ReadResult{}, false\n\t}\n\tindex",
	},
}

// resignations are bugs of how a member that ends hands its promises back.
var resignations = []Mutant{
	{
		Rule: "resignation", Name: "a dying process waits for the holder of the lock", Pkg: libPkg, Test: "^TestResignDoesNotWaitForLong$",
		File: resignFile,
		Old:  ">= lockPatience {", New: ">= time.Hour {",
	},
	{
		Rule: "resignation", Name: "a closed lease hands nothing back", Pkg: libPkg, Test: "^TestResignAfterClose$",
		File: resignFile,
		Old:  "\tif term == 0 {", New: "\tif term == 0 || l.mu.closed {",
	},
	{
		Rule: "resignation", Name: "a member campaigns against the transferee of the leader", Pkg: "./leaderlease/detector", Test: "^TestTheTransfereeIsLeftAlone$",
		File: "leaderlease/detector/detector.go",
		Old:  "\t\td.noteVoteRequest(m.GetTerm(), term)\n", New: "\t\tif !core.IsForcedVote(m) {\n\t\t\td.noteVoteRequest(m.GetTerm(), term)\n\t\t}\n",
	},
	{
		Rule: "resignation", Name: "a member that refused its vote to the transferee defers to it", Pkg: "./leaderlease/detector", Test: "^TestTheTransfereeIsLeftAlone$",
		File: "leaderlease/detector/detector.go",
		Old:  "d.transferAt, d.deferUntil, d.suspicion = time.Time{}, 0, ", New: "d.transferAt, d.suspicion = time.Time{}, ",
	},
	{
		Rule: "resignation", Name: "a member that refuses its vote to the transferee defers to it anyway", Pkg: rulesPkg, Test: "^TestL6ResignationToAShorterLog$",
		File: "leaderlease/detector/detector.go",
		Old:  "\tif !d.transferAt.IsZero() {\n", New: "\tif d.transferAt.IsZero() {\n",
	},
	{
		Rule: "resignation", Name: "a resignation is called a transfer", Pkg: "./leaderlease/detector", Test: "^TestWaysOfFailOvers$",
		File: "leaderlease/detector/detector.go",
		Old:  "if core.IsResignation(m) {", New: "if core.IsResignation(nil) {",
	},
	{
		Rule: "resignation", Name: "a resignation is not marked", Pkg: nodePkg, Test: "^TestALeaderThatEndsByItselfResigns$",
		File: resignFile,
		Old:  "\tcore.MarkResignation(m)\n", New: "\t_ = core.MarkResignation\n",
	},
}
