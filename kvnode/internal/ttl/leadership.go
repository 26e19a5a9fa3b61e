package ttl

import (
	"container/heap"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/core"
)

// servedTime is the time in which a leader could have answered keep-alives, since its leadership
// began. It stops while it is unknown whether this member leads. It must not be compared with a
// clock, or with the servedTime of another leadership.
type servedTime time.Duration

// leadership counts the time of TTL leases while this member leads in one term.
type leadership struct {
	*Engine                 // immutable, like all fields of this block
	ctx     context.Context // ends with the leadership
	term    uint64
	slots   chan struct{} // one for each concurrent revocation
	workers sync.WaitGroup

	// For the goroutine of the ticks only:

	held     bool         // at the last tick this member certainly led, or had no leases
	lastHeld core.Instant // of the last tick at which that was so
	due      queue

	mu struct {
		sync.Mutex
		now  servedTime
		last core.Instant // of the last tick
		// graceEnd is when the grace period ends. Before it nothing is revoked.
		graceEnd servedTime
		leases   map[int64]*entry
		unqueued []*entry // not in due yet
		// nextCheckpoint is when to look for due lease checkpoints.
		nextCheckpoint servedTime
	}
}

// entry is a TTL lease with the time that the leader counts for it. Its fields are guarded by the
// leadership's mu, unless they say otherwise.
type entry struct {
	store.TTLLease // immutable; Remaining is as of adoption
	// deadline never decreases.
	deadline servedTime
	// queuedAt is the entry's position in the queue: at most the later of its deadline and the
	// end of the grace period. For the goroutine of the ticks only.
	queuedAt servedTime
	// revoking is not nil once a revocation is being proposed. It is closed when the lease is
	// gone, or when nothing was proposed after all.
	revoking chan struct{}
	// checkpointing is not nil while the lease's remaining time is being written to the log,
	// and closed afterwards.
	checkpointing chan struct{}
	// checkpointed is set if the log may hold less than the full TTL.
	checkpointed bool
	// checkpointAt is when the next lease checkpoint is due.
	checkpointAt servedTime
}

func newLeadership(ctx context.Context, e *Engine, term uint64) *leadership {
	r := &leadership{Engine: e, ctx: ctx, term: term, slots: make(chan struct{}, maxRevoking)}
	r.mu.leases = make(map[int64]*entry)
	return r
}

// seconds converts a TTL. The longest TTL is slightly less than the longest Duration.
func seconds(n int64) servedTime {
	return servedTime(time.Duration(min(n, store.MaxTTL)) * time.Second)
}

// after returns the time n seconds after s, or the highest time if that overflows.
func (s servedTime) after(n int64) servedTime {
	if then := s + seconds(n); then >= s {
		return then
	}
	return math.MaxInt64 // more than a Duration can say
}

// waitApplied waits until the store has applied everything that earlier leaders committed. An earlier
// leader may have reset a lease checkpoint that the store still holds. waitApplied returns false if
// the leadership ends first.
func (r *leadership) waitApplied() bool {
	for r.cfg.Member.Confirm(r.ctx, r.term) != nil {
		select {
		case <-r.ctx.Done():
		case <-time.After(r.cfg.Interval):
		}
		if r.ctx.Err() != nil {
			return false
		}
	}
	return true
}

// adopt starts counting the time of all existing TTL leases.
func (r *leadership) adopt() {
	for _, l := range r.cfg.Store.TTLLeases() {
		r.mu.Lock()
		r.lookupLocked(l.ID) // it may be gone by now
		r.mu.Unlock()
	}
}

// lookupLocked returns the TTL lease with that ID as the store has it, and its entry, which it
// creates if necessary; nil if there is no such lease. The store is read under mu, because the
// store changes before it calls Changed. So if the lease ends after it was read here, a later call
// of Changed removes the entry.
func (r *leadership) lookupLocked(id int64) (*entry, store.TTLLease) {
	l, ok := r.cfg.Store.TTLLease(id)
	if !ok {
		return nil, store.TTLLease{}
	}
	e := r.mu.leases[id]
	if e == nil {
		e = r.adoptLocked(l)
	}
	return e, l
}

func (r *leadership) adoptLocked(l store.TTLLease) *entry {
	now := r.nowLocked()
	e := &entry{TTLLease: l, deadline: now.after(l.Left()), checkpointed: l.Remaining > 0, checkpointAt: now + servedTime(r.cfg.Checkpoint)}
	r.mu.leases[l.ID] = e
	r.mu.unqueued = append(r.mu.unqueued, e)
	return e
}

// changed drops the entry for the ID of l, whatever its generation, and adds a new one unless the
// lease is gone.
func (r *leadership) changed(l store.TTLLease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.leases[l.ID]; e != nil {
		r.dropLocked(e)
	}
	if l.TTL != 0 {
		r.adoptLocked(l)
	}
}

func (r *leadership) dropLocked(e *entry) {
	delete(r.mu.leases, e.ID)
	for _, waited := range []chan struct{}{e.revoking, e.checkpointing} {
		if waited != nil {
			close(waited)
		}
	}
}

// isCurrent reports whether e is the entry for its ID: the lease is neither gone nor granted again.
func (r *leadership) isCurrent(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leases[e.ID] == e
}

// nowLocked returns the served time now, if all time since the last tick counts. Whether it does, the next tick
// decides.
func (r *leadership) nowLocked() servedTime {
	return r.mu.now + servedTime(r.sinceTick(r.cfg.Clock.Now()))
}

// sinceTick returns how much of the time since the last tick may count in the end: up to MaxGap until the next tick
// begins, and up to MaxGap while that tick waits for a quorum round (holds).
func (r *leadership) sinceTick(now core.Instant) time.Duration {
	if r.mu.last == 0 || now == 0 {
		return 0
	}
	return min(max(now.Sub(r.mu.last), 0), 2*r.cfg.MaxGap)
}

// tick advances the time and starts what is due.
func (r *leadership) tick() {
	// The clock is read before the leader lease is checked. So if the lease is valid, it was valid at the reading,
	// and a pause between the reading and the check becomes part of the next tick's gap.
	now := r.cfg.Clock.Now()
	holds := r.idle() || r.holds()
	r.advance(now, holds)
	if !holds {
		return
	}
	for _, e := range r.expired() {
		r.slots <- struct{}{} // does not block: expired has checked
		r.workers.Go(func() {
			defer func() { <-r.slots }()
			r.revoke(e)
		})
	}
	r.checkpoint()
}

// advance adds the time since the last tick if it was served.
func (r *leadership) advance(now core.Instant, holds bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gap := now.Sub(r.mu.last)
	first := r.mu.last == 0
	r.mu.last = now
	switch {
	case holds && r.held && !first && now != 0 && gap >= 0 && gap <= r.cfg.MaxGap:
		r.mu.now += servedTime(gap)
	case holds && (now.Sub(r.lastHeld) > r.cfg.MaxGap || r.mu.now >= r.mu.graceEnd):
		// The leader starts to serve, or serves again after an interruption. A short
		// interruption does not extend the current grace period, or repeated ones would
		// keep all leases alive.
		r.mu.graceEnd = r.mu.now + servedTime(r.cfg.Grace)
	}
	if r.held = holds; holds {
		r.lastHeld = now
	}
}

// idle reports whether there are no TTL leases. Without them, tick needs no proof of leadership.
func (r *leadership) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.leases) == 0
}

// isLeading reports whether this member leads in the term as far as it knows. A member learns of a later leader
// before it applies that leader's entries.
func (r *leadership) isLeading() bool {
	term, _ := r.cfg.Member.Leadership()
	return term == r.term
}

// holds reports whether this member certainly leads in the term: its leader lease is valid, or a quorum round has
// just succeeded.
func (r *leadership) holds() bool {
	switch r.cfg.Member.LeaseStatus() {
	case core.Valid:
		// The term is read after the lease was found valid, so the lease was valid in this term.
		return r.isLeading()
	case core.Disabled, core.ClockFault, core.Expired, core.Margin:
		// A leader may never hold a leader lease, for instance if answers take longer than
		// the lease lasts.
		ctx, cancel := context.WithTimeout(r.ctx, r.cfg.MaxGap)
		defer cancel()
		return r.cfg.Member.Confirm(ctx, r.term) == nil
	default:
		return false
	}
}

// expired removes expired entries from the queue, up to the rate limit, and marks them as being
// revoked.
func (r *leadership) expired() (out []*entry) {
	quota := min(int(float64(r.cfg.Rate)*r.cfg.Interval.Seconds())+1, cap(r.slots)-len(r.slots))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.mu.unqueued {
		e.queuedAt = e.deadline
		heap.Push(&r.due, e)
	}
	r.mu.unqueued = nil
	r.sweepLocked()
	for len(r.due) > 0 && r.due[0].queuedAt <= r.mu.now && len(out) < quota {
		e := r.due[0]
		end := max(e.deadline, r.mu.graceEnd)
		switch {
		case r.mu.leases[e.ID] != e:
			heap.Pop(&r.due) // gone
		case end > r.mu.now:
			e.queuedAt = end // renewed since, or within the grace period
			heap.Fix(&r.due, 0)
		default:
			heap.Pop(&r.due)
			e.revoking = make(chan struct{})
			out = append(out, e)
		}
	}
	return out
}

// sweepLocked removes entries of ended leases from the queue once they are the majority. Their
// deadlines may be years away.
func (r *leadership) sweepLocked() {
	if len(r.due) < 1024 || len(r.due) < 2*len(r.mu.leases) {
		return
	}
	r.due = slices.DeleteFunc(r.due, func(e *entry) bool { return r.mu.leases[e.ID] != e })
	heap.Init(&r.due)
}

// queue is a heap of entries by queuedAt.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].queuedAt < q[j].queuedAt }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if e, ok := x.(*entry); ok { // nothing else is pushed
		*q = append(*q, e)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
