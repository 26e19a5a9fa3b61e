package leaderlease

import (
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// TryRead reports whether a linearizable read may be served from local state
// now, and from which index on: a state machine that has applied index, or
// more, may answer. There is no waiting and no fallback; unless the status is
// core.Valid the index is 0 and nothing may be served.
//
// It takes no lock, allocates nothing and writes to no memory that other cores
// write. One call may serve a batch of requests, if all of them had arrived
// before it. The read takes effect during the call: pausing afterwards is
// harmless, but the value must be fetched after it, never before.
func (l *Lease) TryRead() (index uint64, status core.Status) {
	// The clock is read before the view is loaded: a lease revoked in between
	// is refused. See check, which is this with the view.
	now := l.clock.Now()
	v := l.view.Load()
	if s := v.Check(now); s != core.Valid {
		l.stats.refused[s].Add(1)
		return 0, s
	}
	if l.disruptable != nil && l.disruptable.Disruptions() != v.marker {
		l.stats.refused[core.ClockFault].Add(1)
		return 0, core.ClockFault
	}
	// Newer than the view at worst, and a commit index never ceases to be one.
	return l.commit.Load(), core.Valid
}

// check is TryRead for callers that want to know more.
func (l *Lease) check() (v *view, now core.Instant, s core.Status) {
	now = l.clock.Now()
	v = l.view.Load()
	s = v.Check(now)
	if s == core.Valid && l.disruptable != nil && l.disruptable.Disruptions() != v.marker {
		s = core.ClockFault
	}
	if s != core.Valid {
		l.stats.refused[s].Add(1)
	}
	return v, now, s
}

// Path says how a read was served.
type Path uint8

const (
	// PathNone is the zero value: the read was not served.
	PathNone Path = iota
	// PathLease: at once, under a valid lease.
	PathLease
	// PathJoined: under the lease, once a renewal under way when the read
	// arrived, or soon after, had come back.
	PathJoined
	// PathReadIndex: after a quorum round that raft made on this leader.
	PathReadIndex
	// PathForwarded: with an index from the leader, on another node.
	PathForwarded

	numPaths = int(PathForwarded) + 1
)

var pathNames = [numPaths]string{"none", "lease", "joined", "read_index", "forwarded"}

// String returns the name used in metrics and trailers.
func (p Path) String() string {
	if int(p) < numPaths {
		return pathNames[p]
	}
	return "unknown"
}

// Read is a read that may be served: local state has applied Index.
type Read struct {
	// Index is the read index: the state machine has applied it, or more.
	Index uint64
	// Term is the newest term this node knew; of the reign, where it leads.
	Term uint64
	// Path says how the index was obtained.
	Path Path
	// Remaining is for how long the lease would have served further reads at
	// that moment; 0 unless Path is PathLease.
	Remaining time.Duration
}
