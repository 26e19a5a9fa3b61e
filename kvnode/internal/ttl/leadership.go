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

// served is how long a reign could have answered keep-alives. It stands still
// while there is no telling whether this member still leads, so it must not be
// compared with a clock, nor with that of another reign.
type servedTime time.Duration

// reign is the time in which this member leads in one term.
type leadership struct {
	*Engine                 // immutable, as all of this block
	ctx     context.Context // ends with the reign
	term    uint64
	slots   chan struct{} // taken by revocations under way
	workers sync.WaitGroup

	// The goroutine of the ticks only:

	held     bool         // whether the leader lease held at the last tick
	lastHeld core.Instant // of the last tick at which it did
	due      queue

	mu struct {
		sync.Mutex
		now  servedTime
		last core.Instant // of the last tick
		// floor is before which nothing is revoked.
		graceEnd servedTime
		leases   map[int64]*entry
		unqueued []*entry // not in due yet
		// nextSave is when to look for checkpoints that are due.
		nextCheckpoint servedTime
	}
}

// entry is a TTL lease as the leader sees it. Its fields are under the reign's mu
// unless it says otherwise.
type entry struct {
	store.TTLLease // immutable; Remaining is of the beginning
	// deadline never decreases.
	deadline servedTime
	// at is where the entry is in the queue: never after its deadline. The
	// goroutine of the ticks only.
	queuedAt servedTime
	// revoking is not nil once its end is being proposed, and closed when it is
	// gone, or when it turns out that nothing was proposed after all.
	revoking chan struct{}
	// saving is not nil while what is left of it is being written to the log, and
	// closed then.
	checkpointing chan struct{}
	// saved says that the log may hold less than its TTL.
	checkpointed bool
	// save is when that is due next.
	checkpointAt servedTime
}

func newLeadership(ctx context.Context, e *Engine, term uint64) *leadership {
	r := &leadership{Engine: e, ctx: ctx, term: term, slots: make(chan struct{}, maxRevoking)}
	r.mu.leases = make(map[int64]*entry)
	return r
}

// seconds is for TTLs, of which the longest is little less than a Duration can
// say.
func seconds(n int64) servedTime {
	return servedTime(time.Duration(min(n, store.MaxTTL)) * time.Second)
}

// after returns the time n seconds after s, or the end of time if that is later.
func (s servedTime) after(n int64) servedTime {
	if then := s + seconds(n); then >= s {
		return then
	}
	return math.MaxInt64 // more than a Duration can say
}

// waitApplied returns once the store has applied what the leaders before have
// committed, and false if the reign ends first. Until then a TTL lease may have
// more time than the store says: a keep-alive took a checkpoint back.
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

// adopt begins to count the time of all TTL leases that there are.
func (r *leadership) adopt() {
	for _, l := range r.cfg.Store.TTLLeases() {
		r.mu.Lock()
		r.lookupLocked(l.ID) // it may be gone by now
		r.mu.Unlock()
	}
}

// lookupLocked returns the TTL lease with that ID as the store has it now, and what is
// counted of it; nil if there is none. The store is read under mu, for it changes
// before Changed is called: whatever is adopted here and goes is dropped by a call
// that is yet to come. What was read before mu was taken may be gone for good.
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

// changed drops what was counted under the ID of l, whichever grant that was of, and
// begins with l unless it is gone.
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

// counts reports whether e is what is counted under its ID: it is neither gone nor
// replaced.
func (r *leadership) isCurrent(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leases[e.ID] == e
}

// nowLocked returns the latest that it may be: until the next tick nobody knows
// whether the time since the last one will count.
func (r *leadership) nowLocked() servedTime {
	return r.mu.now + servedTime(r.sinceTick(r.cfg.Clock.Now()))
}

// sinceTick returns the time since the last tick, as much of it as may count: up to the
// next tick MaxGap, and as much again while that one waits for a quorum.
func (r *leadership) sinceTick(now core.Instant) time.Duration {
	if r.mu.last == 0 || now == 0 {
		return 0
	}
	return min(max(now.Sub(r.mu.last), 0), 2*r.cfg.MaxGap)
}

// tick lets the time pass that counts, and sees to what is due.
func (r *leadership) tick() {
	// The clock is read before the question whether the leader lease holds: if it
	// does, it did at that reading, and a pause in between is seen at the next.
	now := r.cfg.Clock.Now()
	holds := r.idle() || r.holds()
	r.advance(now, holds)
	if !holds {
		return
	}
	for _, e := range r.expired() {
		r.slots <- struct{}{} // there is room: expired has looked
		r.workers.Go(func() {
			defer func() { <-r.slots }()
			r.revoke(e)
		})
	}
	r.checkpoint()
}

// advance counts the time since the last tick if it was served.
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
		// Service begins, or goes on after an interruption. A short one does not
		// prolong the grace of the one before: were there one after another, nothing
		// would ever end.
		r.mu.graceEnd = r.mu.now + servedTime(r.cfg.Grace)
	}
	if r.held = holds; holds {
		r.lastHeld = now
	}
}

func (r *leadership) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.leases) == 0
}

// lasts reports whether this member leads in the reign's term as far as it knows. It
// knows better before it applies what a later leader has replicated.
func (r *leadership) isLeading() bool {
	term, _ := r.cfg.Member.Reign()
	return term == r.term
}

// holds reports whether this member still leads in the reign's term.
func (r *leadership) holds() bool {
	switch r.cfg.Member.Standing() {
	case core.Valid:
		// The term is asked for last: it did not change before the leader lease was found
		// to hold.
		return r.isLeading()
	case core.Disabled, core.ClockFault, core.Expired, core.Margin:
		// There may never be a leader lease, as where answers take longer than it lasts, but
		// there is a leader.
		ctx, cancel := context.WithTimeout(r.ctx, r.cfg.MaxGap)
		defer cancel()
		return r.cfg.Member.Confirm(ctx, r.term) == nil
	default:
		return false
	}
}

// expired takes those whose time is over out of the queue, as many as may be
// revoked now, and marks them.
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
			e.queuedAt = end // renewed since, or spared
			heap.Fix(&r.due, 0)
		default:
			heap.Pop(&r.due)
			e.revoking = make(chan struct{})
			out = append(out, e)
		}
	}
	return out
}

// sweepLocked takes those that are gone out of the queue once they are most of
// it: their time may not be over for years.
func (r *leadership) sweepLocked() {
	if len(r.due) < 1024 || len(r.due) < 2*len(r.mu.leases) {
		return
	}
	r.due = slices.DeleteFunc(r.due, func(e *entry) bool { return r.mu.leases[e.ID] != e })
	heap.Init(&r.due)
}

// queue is a heap of entries by at.
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
