package sim

import (
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// resignFaults have members end by themselves, and say so.
var resignFaults = []faultKind{
	{"resign", 4, 0, 1, resignFault},
	{"resign_all", 2, 0, 0.2, resignAll},
}

// resignFault has the leader resign, at times in the midst of a transfer. Mostly it names who
// has most of its log, and else anybody, who may be down, or no voter.
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

// resignAll has everybody resign at once. Those who do not lead have nothing to hand back.
func resignAll(f *fault) {
	for _, n := range f.c.Nodes() {
		f.resign(n, f.any(nil).ID)
	}
}

// resign has n resign. If it led, it dies at once, soon, or, as it should not, goes on for a
// while.
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
	f.leases.resigned[run], f.leases.word = true, f.c.Now()
	f.after(pick(f.r, 0, f.w.Latency, f.For), func() {
		if n.Process() == run.run {
			f.crashFor(n, between(f.r, 0, f.For))
		}
	})
}

// successor returns who has most of l's log, or now and then anybody.
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

// hasResigned looks at a process that has resigned: it serves nothing any more.
func (o *leaseOracle) hasResigned(s *sim, n *leasetest.Node) {
	if n.Up() && o.resigned[process{n.ID, n.Process()}] && n.Valid() {
		s.violatef("disjoint", n.ID, "a lease is valid, and its holder has resigned")
	}
}

// succeeded counts leaders that need not have waited for the promises' end.
func (s *sim) succeeded() {
	if w := s.leases.word; w > 0 && s.c.Now()-w < min(s.w.D/2, 100*time.Millisecond) {
		s.res.Successors++
	}
}
