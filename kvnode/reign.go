package kvnode

import (
	"sync/atomic"
)

// reign is who leads, and the newest term, as far as this member knows.
type reign struct {
	self uint64 // immutable
	term atomic.Uint64
	// leader is never nil.
	leader atomic.Pointer[leadership]
}

// leadership is who leads, for as long as that stays so.
type leadership struct {
	id      uint64
	term    uint64        // in which id leads, if it is this member
	changed chan struct{} // closed when it is over
}

// Term returns the newest term this member knows.
func (r *reign) Term() uint64 { return r.term.Load() }

// Leader returns the leader's ID as far as this member knows, 0 if none.
func (r *reign) Leader() uint64 { return r.leader.Load().id }

// LeadingTerm returns the term in which this member leads, 0 if it does not: what
// is proposed with ProposeFenced and this term takes effect only if it still does
// then.
func (r *reign) LeadingTerm() uint64 {
	if now := r.leader.Load(); now.id == r.self {
		return now.term
	}
	return 0
}

// LeaderChanged returns a channel that is closed when the present leader, or
// the lack of one, is over.
func (r *reign) LeaderChanged() <-chan struct{} { return r.leader.Load().changed }

// setLeader tells everybody who asked that leadership has moved.
func (r *reign) setLeader(id uint64) {
	old := r.leader.Swap(&leadership{id: id, term: r.Term(), changed: make(chan struct{})})
	close(old.changed)
}

// leads reports whether this member leads.
func (r *reign) leads() bool { return r.Leader() == r.self }
