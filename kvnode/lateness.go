package kvnode

import (
	"sync/atomic"
	"time"
)

// LateBounds are the bounds of Lateness.Within.
var LateBounds = [...]time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second,
}

// Lateness is how late the raft loop came to its ticks since the start. A loop
// that is late waits for a processor, for memory, or for something that it should
// not wait for; its heartbeats are as late. Ticks that were missed altogether
// count as one, as late as the first of them.
type Lateness struct {
	Ticks      uint64
	Total, Max time.Duration
	// Within counts the ticks that were late by no more than each of LateBounds.
	Within [len(LateBounds)]uint64
}

// lateness is a Lateness that the loop writes and others read.
type lateness struct {
	total, max atomic.Int64
	// at counts by the first bound that is not exceeded; the last counts what
	// exceeds all.
	at [len(LateBounds) + 1]atomic.Uint64
}

func (l *lateness) note(late time.Duration) {
	late = max(late, 0)
	l.total.Add(int64(late))
	l.max.Store(max(l.max.Load(), int64(late))) // nobody else stores
	i := 0
	for i < len(LateBounds) && late > LateBounds[i] {
		i++
	}
	l.at[i].Add(1)
}

func (l *lateness) load() Lateness {
	r := Lateness{Total: time.Duration(l.total.Load()), Max: time.Duration(l.max.Load())}
	for i := range l.at {
		r.Ticks += l.at[i].Load()
		if i < len(r.Within) {
			r.Within[i] = r.Ticks
		}
	}
	return r
}
