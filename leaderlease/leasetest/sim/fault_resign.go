package sim

import (
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// resignFaults make members resign before they stop.
var resignFaults = []faultKind{
	{"resign", 4, 0, 1, resignFault},
	{"resign_all", 2, 0, 0.2, resignAll},
}

// resignFault makes the leader resign, sometimes during a transfer. It names a successor by the
// log, or sometimes any node, which may be down or no voter.
func resignFault(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		if f.r.IntN(4) == 0 {
			f.transfer()
			f.after(between(f.r, 0, f.beat()), func() { f.resign(l, f.successor(l)) })
			return
		}
		f.resign(l, f.successor(l))
	})
}

// resignAll makes all nodes resign at once. Resigning does nothing on a node that does not lead.
func resignAll(f *fault) {
	for _, n := range f.c.Nodes() {
		f.resign(n, f.any(nil).ID)
	}
}

// resign makes n resign. If it led, it dies at once or soon, or runs on for a while, which
// embedders should not do.
func (f *fault) resign(n *leasetest.Node, to uint64) {
	if !n.Resign(to) {
		return
	}
	f.trace.note(f.c.Now(), n.ID, "resigns", "to", to)
	f.res.Resignations++
	run := process{n.ID, n.Process()}
	if !slices.Contains(slices.Collect(maps.Values(f.leases.winner)), run) {
		f.violatef("disjoint", n.ID, "resigns, and has never led")
	}
	f.leases.resigned[run], f.leases.resignedAt = true, f.c.Now()
	f.after(pick(f.r, 0, f.w.Latency, f.For), func() {
		if n.Process() == run.run {
			f.crashFor(n, between(f.r, 0, f.For))
		}
	})
}

// successor returns the voter with the most entries of l's log, or sometimes any node.
func (f *fault) successor(l *leasetest.Node) (to uint64) {
	if f.r.IntN(5) == 0 {
		return f.any(nil).ID
	}
	most := uint64(0)
	l.Raw().WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id != l.ID && typ == raft.ProgressTypePeer && pr.Match > most {
			to, most = id, pr.Match
		}
	})
	return to
}

// hasResigned checks that a process that has resigned serves no lease reads.
func (o *leaseOracle) hasResigned(s *sim, n *leasetest.Node) {
	if n.Up() && o.resigned[process{n.ID, n.Process()}] && n.Valid() {
		s.violatef("disjoint", n.ID, "the lease is valid after the node has resigned")
	}
}

// succeeded counts leaders that were elected before the promises would have ended.
func (s *sim) succeeded() {
	if w := s.leases.resignedAt; w > 0 && s.c.Now()-w < min(s.w.D/2, 100*time.Millisecond) {
		s.res.Successors++
	}
}
