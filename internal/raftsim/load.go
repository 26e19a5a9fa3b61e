package raftsim

import (
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// load makes the requests of clients.
type load struct {
	proposal, read uint64 // the last IDs given
	// probe is the first proposal made after everything was healed.
	probe uint64
}

func (s *sim) startLoad() {
	s.every(s.w.proposeEvery, s.propose)
	s.every(s.w.readEvery, s.readIndex)
}

// propose asks some member, mostly one that leads.
func (s *sim) propose() {
	n := s.randomNode(nil)
	if chance(s.rng, 0.5) {
		if l := s.randomNode((*node).leads); l != nil {
			n = l
		}
	}
	if n == nil || s.backlog() > maxBacklog {
		return
	}
	s.load.proposal++
	id := s.load.proposal
	n.later(0, func() {
		if !n.mayAppend() {
			return
		}
		n.p.waiting[id] = true
		_ = n.p.raw.Propose(binary.LittleEndian.AppendUint64(nil, id))
		n.pump()
	})
}

// maxBacklog is how many entries clients let a leader have uncommitted.
const maxBacklog = 50

func (s *sim) backlog() uint64 {
	longest := s.judge.committedTo()
	for _, n := range s.nodes {
		if n.leads() {
			longest = max(longest, n.p.log.last())
		}
	}
	return longest - s.judge.committedTo()
}

// mayAppend is the rule QuietExit: a leader that is about to leave appends
// nothing.
func (n *node) mayAppend() bool {
	return !n.s.cfg.Rules.QuietExit || !n.leads() || !n.leaves()
}

// leaves reports whether a change that is under way takes n's vote away.
func (n *node) leaves() bool {
	m := &n.p.machine
	if len(m.conf.GetVotersOutgoing()) > 0 && !slices.Contains(m.conf.GetVoters(), n.id) {
		return true
	}
	for i := max(m.applied, n.p.log.base) + 1; i <= n.p.log.last(); i++ {
		if n.p.log.at(i).gone&(1<<n.id) != 0 {
			return true
		}
	}
	return false
}

// readIndex asks some member for a read index. The answer must cover every entry that any member
// knows to be committed now.
func (s *sim) readIndex() {
	if n := s.randomNode(nil); n != nil {
		s.readAt(n)
	}
}

func (s *sim) readAt(n *node) {
	s.load.read++
	id := s.load.read
	n.later(0, func() {
		if s.cfg.Rules.OwnTermReads && !n.mayAnswerReads() {
			s.res.Count.RefusedReads++
			return
		}
		n.p.reads[id] = s.judge.committedTo()
		n.p.raw.ReadIndex(binary.LittleEndian.AppendUint64(nil, id))
		n.pump()
	})
}

// mayAnswerReads is the rule OwnTermReads: a leader has committed an entry of its
// own term. A follower forwards the request.
func (n *node) mayAnswerReads() bool {
	return !n.leads() || n.p.log.term(n.p.hard.commit) == n.p.hard.term
}

func (s *sim) readStates(n *node, states []raft.ReadState) {
	for _, rs := range states {
		id := binary.LittleEndian.Uint64(rs.RequestCtx)
		floor, asked := n.p.reads[id]
		if !asked {
			continue // doubled
		}
		delete(n.p.reads, id)
		s.res.Count.Reads++
		if rs.Index < floor {
			s.violate("stale read", "member %s was answered %d for a request made when %d was committed (%d acknowledged)", n.name(), rs.Index, floor, s.judge.acked)
		}
	}
}

// operator changes the membership and switches off removed members.
type operator struct {
	s *sim
}

// maxMembers is how many IDs a run uses. An ID never comes back.
const maxMembers, maxVoters = 14, 5

// change proposes a change at some leader.
func (o *operator) change() {
	s := o.s
	n := s.randomNode((*node).leads)
	if n == nil {
		return
	}
	n.later(0, func() {
		if !n.leads() {
			return
		}
		cc := o.draw(n.p.machine.conf)
		// A joint configuration is left once: raft would make an entry without a
		// meaning of the second attempt.
		leave := cc != nil && len(cc.GetChanges()) == 0 && !n.changePending()
		if cc == nil || !leave && !n.mayAppend() {
			return
		}
		s.note(n, "is asked for %v %s", cc.GetTransition(), raftpb.ConfChangesToString(cc.GetChanges()))
		_ = n.p.raw.ProposeConfChange(cc)
		n.pump()
	})
}

// draw makes up a change of conf, or leaves a joint one that does not end by
// itself.
func (o *operator) draw(conf *raftpb.ConfState) *raftpb.ConfChangeV2 {
	r := o.s.rng
	switch {
	case len(conf.GetVotersOutgoing()) > 0 && conf.GetAutoLeave():
		return nil
	case len(conf.GetVotersOutgoing()) > 0:
		return &raftpb.ConfChangeV2{}
	case o.s.healed:
		return nil
	}
	cc := &raftpb.ConfChangeV2{}
	changes := 1
	if chance(r, 0.3) {
		changes = 2 + r.IntN(2)
		cc.Transition = pick(r, raftpb.ConfChangeTransitionAuto, raftpb.ConfChangeTransitionJointImplicit, raftpb.ConfChangeTransitionJointExplicit).Enum()
	}
	voters, learners := slices.Clone(conf.GetVoters()), slices.Clone(conf.GetLearners())
	for range changes {
		if c := o.single(&voters, &learners); c != nil {
			cc.Changes = append(cc.Changes, c)
		}
	}
	if len(cc.GetChanges()) == 0 {
		return nil
	}
	return cc
}

// single draws the change of one member that has not changed yet.
func (o *operator) single(voters, learners *[]uint64) *raftpb.ConfChangeSingle {
	r := o.s.rng
	kinds := []raftpb.ConfChangeType{raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeRemoveNode}
	change := func(kind raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
		return &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)}
	}
	switch kind := pick(r, kinds...); kind {
	case raftpb.ConfChangeRemoveNode:
		if len(*learners) > 0 && chance(r, 0.3) {
			return change(kind, take(o.s, learners))
		}
		if len(*voters) > 1 {
			return change(kind, take(o.s, voters))
		}
	case raftpb.ConfChangeAddLearnerNode:
		if len(*voters) > 1 && chance(r, 0.3) {
			return change(kind, take(o.s, voters)) // demoted
		}
		if id := o.spare(); id != 0 {
			return change(kind, id)
		}
	default:
		if len(*voters) >= maxVoters {
			return nil
		}
		if len(*learners) > 0 && chance(r, 0.7) {
			return change(kind, take(o.s, learners)) // promoted
		}
		if id := o.spare(); id != 0 {
			return change(kind, id)
		}
	}
	return nil
}

// take removes some member from ids.
func take(s *sim, ids *[]uint64) uint64 {
	i := s.rng.IntN(len(*ids))
	id := (*ids)[i]
	*ids = slices.Delete(*ids, i, i+1)
	return id
}

// spare is a running process that was never a member, 0 if no more are to be had.
func (o *operator) spare() uint64 {
	for _, n := range o.s.nodes {
		if !n.off && !o.s.judge.members[n.id] && chance(o.s.rng, 0.5) {
			return n.id
		}
	}
	if len(o.s.nodes) >= maxMembers {
		return 0
	}
	n := o.s.addNode()
	n.start()
	return n.id
}

// tidy switches off removed members for good, once a majority of the remaining voters reports
// that it has applied the removal.
func (o *operator) tidy() {
	s := o.s
	if s.healed {
		o.change() // leave a joint configuration
	}
	index, conf := s.judge.newestConf()
	if len(conf.GetVotersOutgoing()) > 0 {
		return
	}
	applied := 0
	for _, id := range conf.GetVoters() {
		if n := s.node(id); n.p != nil && n.p.machine.applied >= index {
			applied++
		}
	}
	if applied <= len(conf.GetVoters())/2 {
		return
	}
	for _, n := range s.nodes {
		if !n.off && s.judge.members[n.id] && !isMember(conf, n.id) {
			s.note(n, "is switched off: it is no member of %s", describeConf(conf))
			n.crash()
			n.off = true
			s.res.Count.SwitchedOff++
			o.thenCrash(conf)
		}
	}
}

// thenCrash cuts the power soon after the operator has switched off a removed member.
func (o *operator) thenCrash(conf *raftpb.ConfState) {
	s := o.s
	if s.healed || !chance(s.rng, s.w.afterRemoval) {
		return
	}
	s.after(between(s.rng, 0, 20*time.Millisecond), func() {
		for _, id := range conf.GetVoters() {
			if s.healed {
				return
			}
			s.node(id).crash()
			s.node(id).restartAfter(between(s.rng, 0, 50*time.Millisecond))
		}
	})
}

func isMember(conf *raftpb.ConfState, id uint64) bool {
	return slices.Contains(conf.GetVoters(), id) || slices.Contains(conf.GetLearners(), id) ||
		slices.Contains(conf.GetVotersOutgoing(), id) || slices.Contains(conf.GetLearnersNext(), id)
}
