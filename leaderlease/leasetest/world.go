package leasetest

import (
	"container/heap"
	"time"
)

// world is virtual time: one goroutine takes the earliest event, moves time
// there and runs it. Events of the same instant run in the order in which they
// were scheduled, so a run depends on nothing but its seed.
type world struct {
	now    time.Duration // true time since the beginning of the run
	seq    uint64
	events eventHeap
}

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

// after schedules run in d from now.
func (w *world) after(d time.Duration, run func()) {
	w.seq++
	heap.Push(&w.events, event{at: w.now + max(d, 0), seq: w.seq, run: run})
}

// step runs the next event if it is due by limit.
func (w *world) step(limit time.Duration) bool {
	if len(w.events) == 0 || w.events[0].at > limit {
		return false
	}
	e := heap.Pop(&w.events).(event)
	w.now = e.at
	e.run()
	return true
}

// runFor runs every event of the next d, and ends there.
func (w *world) runFor(d time.Duration) {
	limit := w.now + d
	for w.step(limit) {
	}
	w.now = limit
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = event{}
	*h = old[:n]
	return e
}
