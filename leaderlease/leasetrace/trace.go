package leasetrace

import (
	"errors"
	"sync"
)

// Trace keeps the newest events of one Lease in memory. It is a leaderlease.Tracer, and any
// goroutine may read it. A reader keeps the Lease waiting for as long as it copies events.
type Trace struct {
	mu    sync.Mutex
	start Start
	ring  []Event
	next  uint64 // the number of the next event
	view  Event  // the newest KindView, which the ring may have lost
}

// New returns the Trace of one Lease. It keeps that many events, at least 1, of 80 bytes each. A
// reader that falls further behind loses the oldest. The Trace also keeps the newest KindView,
// however old it is: the lease of a sole voter has no later one.
func New(events int) *Trace { return &Trace{ring: make([]Event, max(events, 1)), next: 1} }

// TraceStart implements leaderlease.Tracer. It fails if t was not made by New, or belongs to
// another Lease: each start of a node needs a Trace of its own.
func (t *Trace) TraceStart(s Start) error {
	if t == nil || len(t.ring) == 0 {
		return errors.New("leasetrace: the Trace keeps no events: make it with New, or leave Config.Tracer nil")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.start.ID != 0 {
		return errors.New("leasetrace: the Trace is another Lease's: each start of a node needs one of its own")
	}
	t.start = s
	return nil
}

// TraceEvent implements leaderlease.Tracer. It gives e its number.
func (t *Trace) TraceEvent(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.Seq = t.next
	t.ring[t.next%uint64(len(t.ring))] = e
	if e.Kind == KindView {
		t.view = e
	}
	t.next++
}

// Start returns what the Lease began with, and whether there is one yet.
func (t *Trace) Start() (start Start, begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.start, t.start.ID != 0
}

// Since copies the events after the one numbered seq to events, oldest first, and
// returns how many. If they do not begin with the next number, those between are lost.
func (t *Trace) Since(seq uint64, events []Event) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := uint64(len(t.ring))
	at := seq + 1
	if t.next > size {
		at = max(at, t.next-size)
	}
	if seq < t.view.Seq && t.view.Seq < at && len(events) > 0 {
		events[0] = t.view
		n = 1
	}
	for ; n < len(events) && at < t.next; n++ {
		events[n] = t.ring[at%size]
		at++
	}
	return n
}
