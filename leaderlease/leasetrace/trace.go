package leasetrace

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"
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

// Start returns the initial state of the Lease, and whether the Lease has started.
func (t *Trace) Start() (start Start, begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.start, t.start.ID != 0
}

// Since copies the events after number seq to events, oldest first, and returns how many. If
// they do not begin with seq+1, the events between are lost.
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

// Process is the trace of one process of one member.
type Process struct {
	Start  Start
	Events []Event
	// Ended is set if no event follows the last one of Events.
	Ended bool
	// Cut says why events are missing behind the last one of Events, if that is known.
	Cut string
	// torn is the error of a last line that cannot be read.
	torn string
}

// Take appends the events that t has recorded since the last call, and returns their
// number. Lost events leave a gap in the sequence numbers.
func (p *Process) Take(t *Trace) (n int) {
	p.Start, _ = t.Start()
	var some [256]Event
	for {
		got := t.Since(p.last(), some[:])
		p.Events = append(p.Events, some[:got]...)
		n += got
		if got < len(some) {
			return n
		}
	}
}

// last returns the number of the newest event.
func (p *Process) last() uint64 {
	if len(p.Events) == 0 {
		return 0
	}
	return p.Events[len(p.Events)-1].Seq
}

// remembered returns the shortest promise duration that storage may hold when the process
// has ended. older is the result for its predecessors. It is 0 if no promise was granted.
func (p *Process) remembered(older time.Duration) (least time.Duration) {
	s := &p.Start
	if s.Duration == 0 {
		return 0 // its first line is missing, and what it has saved
	}
	least = cmp.Or(s.Saved, older)
	granted, last := older > 0, uint64(0)
	for i := range p.Events {
		e := &p.Events[i]
		if e.Seq != last+1 && s.Saved > 0 {
			least = min(least, s.Duration) // it may have fallen in the gap
		}
		last = e.Seq
		switch {
		case e.Kind == KindGrant:
			granted = true
		case e.Kind == KindPromise && e.OK:
			least = max(least, e.Duration)
		case e.Kind == KindSaving:
			least = min(least, e.Duration) // even if it is not known to be durable
		}
	}
	if (!p.Ended || p.Cut != "") && s.Saved > 0 {
		least = min(least, s.Duration)
	}
	if !granted {
		return 0
	}
	return least
}

// whole returns the number of events before the first gap, and a description of the gap,
// empty if there is none.
func (p *Process) whole() (n int, missing string) {
	for i := range p.Events {
		if want, got := uint64(i+1), p.Events[i].Seq; got != want {
			return i, fmt.Sprintf("events %d to %d are missing", want, got-1)
		}
	}
	return len(p.Events), p.Cut
}

// String names the process.
func (p *Process) String() string {
	return fmt.Sprintf("member %x, process %d", p.Start.ID, p.Start.Incarnation)
}
