package leasetrace

import (
	"cmp"
	"fmt"
	"time"
)

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
