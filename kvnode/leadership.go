package kvnode

import "sync/atomic"

// leadership is the leader and the newest term, as far as this member knows. Only the raft loop
// sets them. All methods but set are safe for concurrent use.
type leadership struct {
	self uint64 // immutable
	term atomic.Uint64
	// current is never nil.
	current atomic.Pointer[leader]
	// raftLeader is the leader in raft's newest Ready. It is set before the lease sees that Ready, and current is set
	// afterwards.
	raftLeader atomic.Uint64
}

// leader is the leader, or the lack of one, until that changes.
type leader struct {
	id      uint64        // raft.None if there is no leader
	term    uint64        // the term in which this member leads, if id is this member
	changed chan struct{} // closed when the leader or its term changes
}

func newLeadership() *leadership {
	l := &leadership{}
	l.current.Store(&leader{changed: make(chan struct{})})
	return l
}

// Term returns the newest term this member knows.
func (l *leadership) Term() uint64 { return l.term.Load() }

// Leader returns the leader's ID as far as this member knows, raft.None if there is none.
func (l *leadership) Leader() uint64 { return l.current.Load().id }

// LeadingTerm returns the term in which this member leads, 0 if it does not.
func (l *leadership) LeadingTerm() uint64 {
	if now := l.current.Load(); now.id == l.self {
		return now.term
	}
	return 0
}

// set makes id the leader, in the newest term, and ends the wait for a change of the previous one.
func (l *leadership) set(id uint64) {
	old := l.current.Swap(&leader{id: id, term: l.Term(), changed: make(chan struct{})})
	close(old.changed)
}

// Leads reports whether this member leads.
func (l *leadership) Leads() bool { return l.Leader() == l.self }
