package leaderlease

import (
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// TryRead reports whether a linearizable read may be served from local state
// now, and from which index on: a state machine that has applied index, or
// more, may answer. There is no waiting and no fallback; unless the status is
// StatusValid the index is 0 and nothing may be served.
//
// It takes no lock, allocates nothing and writes to no memory that other cores
// write. One call may serve a batch of requests, if all of them had arrived
// before it. The read takes effect during the call: pausing afterwards is
// harmless, but the value must be fetched after it, never before.
func (l *Lease) TryRead() (index uint64, status Status) {
	if l == nil {
		return 0, core.Disabled
	}
	// The clock is read before the view is loaded: a lease revoked in between
	// is refused.
	now := l.clock.Now()
	v := l.view.Load()
	if v.Check(now) != core.Valid || l.disrupted(v) {
		if _, _, s := l.check(); s != core.Valid {
			return 0, s
		}
	}
	// Newer than the view at worst, and a commit index never ceases to be one.
	return l.commit.Load(), core.Valid
}

// disrupted reports whether the clock may have missed time since v was made.
func (l *Lease) disrupted(v *view) bool {
	return l.disruptable != nil && l.disruptable.Disruptions() != v.marker
}

// check is TryRead for callers that want to know more, or to know why not.
func (l *Lease) check() (v *view, now core.Instant, s Status) {
	now = l.clock.Now()
	v = l.view.Load()
	if s = v.Check(now); s == core.ClockFault {
		// The view may be newer than the reading. If not, the clock is wrong.
		now = l.clock.Now()
		v = l.view.Load()
		s = v.Check(now)
	}
	if s == core.Valid && l.disrupted(v) {
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
	// PathLease means at once, under a valid lease.
	PathLease
	// PathJoined means under the lease, once a renewal that covers the moment
	// of arrival had come back.
	PathJoined
	// PathReadIndex means after a quorum round that raft made on this leader.
	PathReadIndex
	// PathForwarded means with an index from the leader, on another node: by its
	// lease or by a round, which ReadIndex insists on.
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

// ReadResult says how a read may be served. Local state has applied Index, so it may answer.
type ReadResult struct {
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
