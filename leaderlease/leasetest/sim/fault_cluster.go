package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

var clusterFaults = []faultKind{
	{"transfer", 4, 0, 0, func(f *fault) { f.transfer() }},
	{"change", 6, 0, 0, changeFault},
	{"restore", 3, 0, 0, func(f *fault) { f.change(f.home()) }},
	{"alone", 1, 1, 6, aloneFault},
	{"remove_leader", 2, 0, 0, removeLeader},
	{"compact", 3, 0, 0, compactFault},
	{"forget", 2, 0, 0, func(f *fault) {
		if n := f.any(follows); n != nil {
			n.ForgetLeader()
		}
	}},
	{"campaign", 3, 0, 0, func(f *fault) {
		if n := f.any(follows); n != nil {
			n.Campaign()
		}
	}},
	{"push", 4, 0.5, 3, func(f *fault) { f.push(f.ids(), f.For) }},
	{"invalidate", 1, 0, 0, func(f *fault) {
		if n := f.c.Leader(); n != nil && n.Lease() != nil {
			hook.Invalidate(n.Lease())
		}
	}},
	{"tick_burst", 3, 0, 0, tickBurst},
}

// transfer hands leadership to another voter, which it returns with the leader.
func (f *fault) transfer() (from, to *leasetest.Node) {
	l := f.c.Leader()
	if l == nil || l.Paused() {
		return nil, nil
	}
	to = f.any(func(n *leasetest.Node) bool { return n != l && slices.Contains(voters(l), n.ID) })
	if to == nil {
		return nil, nil
	}
	f.trace.note(f.c.Now(), l.ID, "hands leadership over", "to", to.ID)
	l.Transfer(to.ID)
	return l, to
}

// configuration is what a change should lead to.
type configuration struct{ voters, learners []uint64 }

// home is the configuration the run began with.
func (s *sim) home() (c configuration) {
	for id := uint64(1); id <= uint64(s.w.Voters+s.w.Learners); id++ {
		if id <= uint64(s.w.Voters) {
			c.voters = append(c.voters, id)
			continue
		}
		c.learners = append(c.learners, id)
	}
	return c
}

func changeFault(f *fault) {
	ids := f.ids()
	f.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	n := min(len(ids), pick(f.r, 1, 2, 2, 3, 3, 3, 4, 5, 5, 7))
	to := configuration{voters: ids[:n]}
	for _, id := range ids[n:] {
		if f.r.IntN(4) == 0 {
			to.learners = append(to.learners, id)
		}
	}
	f.change(to)
}

// aloneFault shrinks the group to its leader and grows it again.
func aloneFault(f *fault) {
	if l := f.c.Leader(); l != nil {
		f.change(configuration{voters: []uint64{l.ID}})
		f.after(f.For, func() { f.change(f.home()) })
	}
}

func removeLeader(f *fault) {
	l := f.c.Leader()
	if l == nil {
		return
	}
	if to, ok := f.without(l); ok {
		f.change(to)
	}
}

// without returns the configuration without a voter, or with it as a learner, if others vote.
func (f *fault) without(l *leasetest.Node) (to configuration, ok bool) {
	to.voters = slices.DeleteFunc(voters(l), func(id uint64) bool { return id == l.ID })
	if len(to.voters) > 0 && f.r.IntN(2) == 0 {
		to.learners = []uint64{l.ID}
	}
	return to, len(to.voters) > 0
}

// change proposes to the leader what leads to a configuration: in one step if
// one will do, else through a joint configuration. If the group is in one that
// it does not leave by itself, it is left first.
func (f *fault) change(to configuration) {
	f.changeBy(to, pick(f.r, raftpb.ConfChangeTransitionAuto,
		raftpb.ConfChangeTransitionJointImplicit, raftpb.ConfChangeTransitionJointExplicit))
}

func (f *fault) changeBy(to configuration, how raftpb.ConfChangeTransition) {
	l := f.c.Leader()
	if l == nil || l.Paused() {
		return
	}
	if len(l.Conf().GetVotersOutgoing()) > 0 {
		l.Change(&raftpb.ConfChangeV2{})
		return
	}
	changes := difference(l.Conf(), to, f.ids())
	if len(changes) == 0 {
		return
	}
	f.trace.note(f.c.Now(), l.ID, "proposes configuration", "voters learners", digits(to.voters), digits(to.learners))
	l.Change(&raftpb.ConfChangeV2{Transition: how.Enum(), Changes: changes})
	if how == raftpb.ConfChangeTransitionJointExplicit {
		f.after(f.upTo(4), func() { f.leaveJoint() })
	}
}

func (f *fault) leaveJoint() {
	if l := f.c.Leader(); l != nil && !l.Paused() && len(l.Conf().GetVotersOutgoing()) > 0 {
		l.Change(&raftpb.ConfChangeV2{})
	}
}

func difference(from *raftpb.ConfState, to configuration, ids []uint64) (changes []*raftpb.ConfChangeSingle) {
	learners := slices.Concat(from.GetLearners(), from.GetLearnersNext())
	for _, id := range ids {
		var t raftpb.ConfChangeType
		isVoter, isLearner := slices.Contains(from.GetVoters(), id), slices.Contains(learners, id)
		switch {
		case slices.Contains(to.voters, id):
			if isVoter {
				continue
			}
			t = raftpb.ConfChangeAddNode
		case slices.Contains(to.learners, id):
			if isLearner {
				continue
			}
			t = raftpb.ConfChangeAddLearnerNode
		case isVoter || isLearner:
			t = raftpb.ConfChangeRemoveNode
		default:
			continue
		}
		changes = append(changes, &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: new(id)})
	}
	return changes
}

// compactFault compacts logs, so that slow followers need a snapshot.
func compactFault(f *fault) {
	for _, n := range f.c.Nodes() {
		if f.r.IntN(3) != 0 {
			f.trace.note(f.c.Now(), n.ID, "compacts its log", "applied", n.Applied())
			n.Compact()
			f.compareState(n)
		}
	}
}

// push has followers among the given nodes forget their leader and one of them
// campaign, again and again, until there is a new leader. It takes away what
// raft itself does against elections that come too early, so that only the
// promises are in the way.
func (f *fault) push(among []uint64, d time.Duration) {
	if len(among) == 0 {
		return
	}
	end, term := f.c.Now()+d, f.leases.newest
	step := 3*f.w.Latency + f.w.Disk + time.Millisecond
	var again func(round int)
	again = func(round int) {
		if f.c.Now() >= end || f.leases.newest > term {
			return
		}
		f.pushOnce(among, round)
		f.after(step+between(f.r, 0, step/4), func() { again(round + 1) })
	}
	again(0)
}

func (f *fault) pushOnce(among []uint64, round int) {
	for _, id := range among {
		if n := f.c.Node(id); n.Up() && !n.Paused() && n.Role() == raft.StateFollower {
			n.ForgetLeader()
		}
	}
	// A candidate with a shorter log cannot win, so the candidates alternate.
	n := f.c.Node(among[(f.N+round/4)%len(among)])
	if n.Up() && !n.Paused() && n.Role() != raft.StateLeader {
		n.Campaign()
	}
}

// tickBurst gives a process many ticks at once, as after a long garbage collection.
func tickBurst(f *fault) {
	n := f.leaderOr()
	if n == nil || !n.Up() || n.Paused() {
		return
	}
	f.note(n, "gets a burst of ticks")
	for range 1 + f.r.IntN(2*f.w.ElectionTick) {
		n.Tick()
	}
}
