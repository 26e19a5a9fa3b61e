package raftsim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// planTearing plans the next time at which a member is to forget changes.
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

// parting is a partition after two or more changes of configuration by l. The follower x receives
// the changes in one append, and dies before its disk knows that the first one is committed. Then
// x has a majority of the voters before the changes on its side, and l has a majority of the
// voters after them.
type parting struct {
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
	p := &parting{s: s, l: pick(s.torn, leaders...), until: s.now + 500*time.Millisecond}
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
func (p *parting) draw() bool {
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
func (p *parting) propose(cc *raftpb.ConfChangeV2) {
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
func (p *parting) step() {
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
func (p *parting) tear() {
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
func (p *parting) part() {
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
