package raftsim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// fault lets one thing go wrong.
func (s *sim) fault() {
	if s.healed {
		return
	}
	n := s.randomNode(nil)
	if n == nil {
		return
	}
	s.trace.mix(uint64(s.now), n.id)
	faults := []func(*node){
		s.crashOne, s.crashOne, s.crashOne, s.crashAll, s.part, s.part, s.join, s.join, s.slowType, s.stallDisk, s.stallDisk, s.pause,
		s.transfer, s.transfer, s.campaignNow, s.forgetLeader, s.checkpointNow, s.tickBurst, s.replay, s.replay,
	}
	pick(s.rng, faults...)(n)
}

func (s *sim) crashOne(n *node) {
	s.crashSoon(n, 0, pick(s.rng, 0, 10*time.Millisecond, 100*time.Millisecond, time.Second))
}

// crashSoon crashes n within a while, and lets it come back within another.
func (s *sim) crashSoon(n *node, within, back time.Duration) {
	run := n.run
	s.after(between(s.rng, 0, within), func() {
		if s.healed || n.run != run {
			return
		}
		n.crash()
		n.restartAfter(between(s.rng, 0, back))
	})
}

func (s *sim) crashAll(*node) {
	s.note(nil, "POWER CUT")
	for _, n := range s.nodes {
		n.crash()
		n.restartAfter(between(s.rng, 0, 100*time.Millisecond))
	}
}

func (s *sim) part(n *node) {
	switch s.rng.IntN(4) {
	case 0:
		s.net.split()
	case 1:
		s.net.isolate(n.id, true, false)
	case 2:
		s.net.isolate(n.id, false, true)
	default:
		s.net.isolate(n.id, true, true)
	}
	s.note(n, "is parted from others")
	s.after(soon(s.rng, 200*time.Millisecond), s.net.join)
}

func (s *sim) join(*node) { s.net.join() }

// slowType delays messages of one type, which shows races with the others.
func (s *sim) slowType(*node) {
	kind := pick(s.rng, raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgSnap, raftpb.MsgHeartbeat,
		raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow, raftpb.MsgReadIndex, raftpb.MsgReadIndexResp, raftpb.MsgPreVoteResp)
	s.net.slow = [numTypes]time.Duration{}
	s.net.slow[kind] = between(s.rng, 0, 500*time.Millisecond)
	s.net.slowUntil = s.now + between(s.rng, 0, time.Second)
	s.note(nil, "%v is slow", kind)
}

func (s *sim) stallDisk(n *node) { s.stall(n, between(s.rng, 0, 500*time.Millisecond)) }

func (s *sim) stall(n *node, d time.Duration) {
	s.note(n, "disk stalls for %v", d)
	n.disk.stalledUntil = max(n.disk.stalledUntil, s.now+d)
}

func (s *sim) pause(n *node) {
	n.pausedUntil = s.now + between(s.rng, 0, 300*time.Millisecond)
	s.note(n, "is paused until %v", n.pausedUntil)
}

// transfer transfers leadership, sometimes to a member with a slow disk.
func (s *sim) transfer(n *node) {
	leader := s.randomNode((*node).leads)
	if leader == nil || leader == n {
		return
	}
	if chance(s.rng, s.w.slowCandidate) {
		s.stall(n, between(s.rng, 0, 300*time.Millisecond))
	}
	s.res.Count.Transfers++
	s.note(leader, "is asked to transfer to %d", n.id)
	leader.later(0, func() {
		leader.p.raw.TransferLeader(n.id)
		leader.pump()
	})
}

func (s *sim) campaignNow(n *node) { n.later(0, n.campaign) }

func (s *sim) forgetLeader(n *node) {
	n.later(0, func() {
		_ = n.p.raw.ForgetLeader()
		n.pump()
	})
}

func (s *sim) checkpointNow(n *node) { n.later(0, n.checkpoint) }

func (s *sim) tickBurst(n *node) {
	n.later(0, func() {
		for range s.rng.IntN(2 * electionTick) {
			n.p.raw.Tick()
			n.pump()
		}
	})
}

func (s *sim) replay(*node) { s.net.replay(64) }

// candidate is called for a Ready that makes n a candidate, before the write of its term begins.
// A slow disk matters then.
func (s *sim) candidate(n *node) {
	s.res.Count.Campaigns++
	if !s.healed && chance(s.rng, s.w.slowCandidate) {
		s.stall(n, between(s.rng, 0, 300*time.Millisecond))
	}
}

// leaving is called when a leader has just committed a change that may remove its vote, before
// it can tell another member.
func (s *sim) leaving(n *node) {
	if s.healed || !n.leaves() || !chance(s.rng, s.w.afterRemoval) {
		return
	}
	s.note(n, "is cut off, just as it has committed that it leaves")
	s.net.isolate(n.id, false, true)
	s.after(between(s.rng, 0, 200*time.Millisecond), s.net.join)
	s.crashSoon(n, 300*time.Millisecond, 100*time.Millisecond)
}

// crashIfVolatile may crash the sender of a message that depends on data that is not durable yet. The
// sender comes back at once, and its old messages arrive again.
func (s *sim) crashIfVolatile(n *node, m *raftpb.Message) {
	if s.healed || m.GetType() != s.w.volatileType || !chance(s.rng, s.chanceOfCrash(n, m)) || !n.forgettable(m).any() {
		return
	}
	s.res.Count.VolatileCrashes++
	s.stall(n, 100*time.Millisecond)
	s.net.muteSome(n, 100*time.Millisecond)
	run := n.run
	s.after(between(s.rng, 0, 60*time.Millisecond), func() {
		if s.healed || n.run != run {
			return
		}
		n.crash()
		n.disk.stalledUntil = 0
		s.net.replay(16)
		s.after(between(s.rng, 0, 10*time.Millisecond), func() { s.comeBack(n) })
	})
}

// chanceOfCrash is lower for messages that leave all the time.
func (s *sim) chanceOfCrash(n *node, m *raftpb.Message) float64 {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		if n.changes() {
			return s.w.volatileCrash / 2
		}
		return s.w.volatileCrash / 20
	default:
		return s.w.volatileCrash
	}
}

// comeBack starts n, which often campaigns.
func (s *sim) comeBack(n *node) {
	n.start()
	if chance(s.rng, 0.7) {
		n.campaign()
	}
}

// heal lets everything work from now on.
func (s *sim) heal() {
	s.note(nil, "everything is healed")
	s.healed = true
	s.net.join()
	s.net.slow = [numTypes]time.Duration{}
	s.w.slowTell, s.w.apply, s.w.tell = 0, time.Millisecond, time.Millisecond
	s.load.probe = s.load.proposal + 1
	s.judge.healedAt = s.now
	for _, n := range s.nodes {
		n.pausedUntil, n.disk.stalledUntil, n.disk.tearNext = 0, 0, nil
		n.start()
	}
}

// isCandidate reports whether a member campaigns in its own term.
func isCandidate(st *raft.SoftState) bool {
	return st != nil && st.RaftState == raft.StateCandidate
}

// planTearing schedules the next fault in which a member forgets changes.
func (s *sim) planTearing() {
	if s.w.tornEvery == 0 {
		return
	}
	s.after(soon(s.torn, s.w.tornEvery), func() {
		if s.healed {
			return
		}
		s.tearChanges()
		s.planTearing()
	})
}

// partitionPlan is a partition after two or more changes of configuration by l. The follower x receives
// the changes in one append, and dies before its disk knows that the first one is committed. Then
// x has a majority of the voters before the changes on its side, and l has a majority of the
// voters after them.
type partitionPlan struct {
	s       *sim
	l, x    *node
	side    []uint64
	changes []*raftpb.ConfChangeSingle
	term    uint64
	until   time.Duration // when l must have made the changes
}

func (s *sim) tearChanges() {
	var leaders []*node
	for _, n := range s.nodes {
		if n.leads() {
			leaders = append(leaders, n)
		}
	}
	if len(leaders) == 0 {
		return
	}
	p := &partitionPlan{s: s, l: pick(s.torn, leaders...), until: s.now + 500*time.Millisecond}
	if !p.draw() {
		return
	}
	s.note(p.x, "is not to hear of %s", raftpb.ConfChangesToString(p.changes))
	p.term = p.l.p.hard.term
	s.net.part([]uint64{p.x.id}, p.until)
	if chance(s.torn, 0.5) {
		p.propose(&raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionJointImplicit.Enum(), Changes: p.changes})
		p.changes = nil
	}
	p.step()
}

// draw chooses x, its side and the changes: voters of the side vote no more, or others come.
func (p *partitionPlan) draw() bool {
	conf, r := p.l.p.machine.conf, p.s.torn
	old := slices.Clone(conf.GetVoters())
	r.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	others := slices.DeleteFunc(old, func(id uint64) bool { return id == p.l.id })
	if len(others) < 2 || len(others) == len(conf.GetVoters()) || len(conf.GetVotersOutgoing()) > 0 {
		return false
	}
	p.side = others[:len(conf.GetVoters())/2+1]
	p.x = p.s.node(p.side[0])
	if p.x.p == nil || p.x.leads() {
		return false
	}
	change := func(kind raftpb.ConfChangeType, id uint64) {
		p.changes = append(p.changes, &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)})
	}
	if grow := 2*len(p.side) - len(others); grow+len(others) < maxVoters && chance(r, 0.5) {
		fresh := slices.Clone(conf.GetLearners())
		for len(fresh) < grow && len(p.s.nodes) < maxMembers {
			n := p.s.addNode()
			n.start()
			fresh = append(fresh, n.id)
		}
		for _, id := range fresh[:min(grow, len(fresh))] {
			change(raftpb.ConfChangeAddNode, id)
		}
		return len(p.changes) == grow
	}
	for _, id := range p.side[1:] {
		// An ID never comes back, and there are not so many.
		change(pick(r, raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeRemoveNode), id)
	}
	change(raftpb.ConfChangeAddLearnerNode, p.x.id) // it must be told of the log
	return true
}

// propose proposes cc, unless another change has taken away a member meanwhile: an ID
// never comes back.
func (p *partitionPlan) propose(cc *raftpb.ConfChangeV2) {
	p.l.later(0, func() {
		conf := p.l.p.machine.conf
		gone := func(c *raftpb.ConfChangeSingle) bool {
			return p.s.judge.members[c.GetNodeId()] && !isMember(conf, c.GetNodeId())
		}
		if p.l.changes() || slices.ContainsFunc(cc.GetChanges(), gone) {
			return
		}
		_ = p.l.p.raw.ProposeConfChange(cc)
		p.l.pump()
	})
}

// step proposes the next change when the one before is applied.
func (p *partitionPlan) step() {
	p.s.after(2*time.Millisecond, func() {
		l := p.l
		switch {
		case p.s.healed || p.s.now >= p.until || !l.leads() || l.p.hard.term != p.term:
			p.s.net.part([]uint64{p.x.id}, 0)
			return
		case l.changes():
		case len(p.changes) == 0:
			p.tear()
			return
		case l.mayAppend():
			p.propose(&raftpb.ConfChangeV2{Changes: p.changes[:1]})
			p.changes = p.changes[1:]
		}
		p.step()
	})
}

// tear lets x catch up and kills it: within the write of several changes, or a moment
// later.
func (p *partitionPlan) tear() {
	s := p.s
	s.net.part([]uint64{p.x.id}, 0)
	if p.x.p == nil {
		return
	}
	if chance(s.torn, 0.7) {
		p.x.disk.tearNext = p.part
		return
	}
	run := p.x.run
	s.after(between(s.torn, 0, 150*time.Millisecond), func() {
		if !s.healed && p.x.run == run {
			p.x.crash()
			p.part()
		}
	})
}

// part parts the group and has x campaign.
func (p *partitionPlan) part() {
	s := p.s
	s.res.Count.TornChanges++
	s.net.part(p.side, s.now+between(s.torn, 200*time.Millisecond, 600*time.Millisecond))
	p.x.restartAfter(between(s.torn, 0, 20*time.Millisecond))
	for i := range 4 {
		s.after(time.Duration(1+i)*100*time.Millisecond+between(s.torn, 0, 50*time.Millisecond), func() {
			if !s.healed {
				p.x.campaign()
			}
		})
	}
}
