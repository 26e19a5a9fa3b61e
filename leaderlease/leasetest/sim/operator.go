package sim

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// operator is who switches the nodes of a simulation on and off once everything
// has healed, by what the group has told. What a crash has made the members
// forget nobody else tells them then.
type operator struct {
	conf  *raftpb.ConfState
	index uint64
}

// sees notes a configuration that n has applied. A member that was removed is no
// witness: it is gone soon, and those that remain may not know it yet.
func (o *operator) sees(n *leasetest.Node, index uint64) {
	if index > o.index && slices.Contains(voters(n), n.ID) {
		o.conf, o.index = n.Conf(), index
	}
}

// wants reports whether a node should run: every member does.
func (o *operator) wants(id uint64) bool {
	return slices.Contains(slices.Concat(o.conf.GetVoters(), o.conf.GetVotersOutgoing(), o.conf.GetLearners(), o.conf.GetLearnersNext()), id)
}

// operate starts members and switches off who is none, again and again.
func (s *sim) operate() {
	for _, n := range s.c.Nodes() {
		switch {
		case s.operator.wants(n.ID):
			s.restart(n)
		case n.Up():
			s.trace.note(s.c.Now(), n.ID, "is switched off", "")
			n.Crash(0)
		}
	}
	s.c.After(s.w.Tick, func() {
		if !s.violated() {
			s.operate()
		}
	})
}
