package sim

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// operator starts and stops the nodes of a simulation once everything has healed, by the
// configurations that members have applied. It does not repair configurations that members
// have forgotten in a crash.
type operator struct {
	conf  *raftpb.ConfState
	index uint64
}

// sees records a configuration that n has applied. It ignores removed members, because they
// may know a configuration that the remaining members do not know yet.
func (o *operator) sees(n *leasetest.Node, index uint64) {
	if index > o.index && slices.Contains(voters(n), n.ID) {
		o.conf, o.index = n.Conf(), index
	}
}

// wants reports whether a node should run: every member does.
func (o *operator) wants(id uint64) bool {
	return slices.Contains(slices.Concat(o.conf.GetVoters(), o.conf.GetVotersOutgoing(), o.conf.GetLearners(), o.conf.GetLearnersNext()), id)
}

// operate starts members and switches off other nodes, once each tick.
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
