package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// Info is everything there is to know about a lease at one moment.
type Info struct {
	ID     uint64
	Term   uint64
	Leader uint64 // 0 if unknown
	Role   raft.StateType

	// Status says whether a lease read would be served now, and if not, why.
	Status Status
	// Remaining is for how long lease reads are still served, 0 if they are
	// not; End is how long until another leader may exist, by this node's clock:
	// Remaining and the margin. Both are at most Duration.
	Remaining, End time.Duration

	// Promise is what this node owes to a leader, and its restart hold.
	Promise PromiseInfo
	// Peers are the other voters as the leader sees them: who grants nothing,
	// or something else than Duration, stands out here.
	Peers []PeerInfo

	Commit, Applied uint64
	// Waiting is the number of reads that wait.
	Waiting int

	Duration, MaxClockSkew, MaxPromise time.Duration
	Clock                              clock.Info
	// Err is the misuse that keeps leases off, if any.
	Err error
}

// Valid reports whether a lease read would be served.
func (i *Info) Valid() bool { return i.Status == core.Valid }

// Info describes the lease as of now.
func (l *Lease) Info() Info {
	if l == nil {
		return Info{Status: core.Disabled}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	mu := &l.mu
	now := l.nowLocked()
	v := l.view.Load()
	s := Info{
		ID: l.id(), Term: mu.term, Leader: mu.leader, Role: mu.role,
		Status:    v.Check(now),
		Remaining: v.Remaining(now, l.cfg.Duration),
		Promise:   mu.guard.Info(now),
		Commit:    l.commit.Load(), Applied: l.applied.Load(),
		Waiting:  mu.reads.waiting.len() + mu.reads.barriers.len(),
		Duration: l.cfg.Duration, MaxClockSkew: l.cfg.MaxClockSkew, MaxPromise: l.cfg.MaxPromise,
		Clock: l.clockInfo,
		Err:   l.wrongLocked(),
	}
	if v.End != 0 {
		s.End = min(max(v.End.Sub(now), 0), l.cfg.Duration)
	}
	if mu.role == raft.StateLeader {
		s.Peers = mu.lease.Peers(now)
	}
	return s
}
