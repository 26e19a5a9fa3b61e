package leasetest

import "time"

// world is virtual time: one goroutine takes the earliest event, moves time
// there and runs it. Events of the same instant run in the order in which they
// were scheduled, so a run depends on nothing but its seed.
type world struct {
	now    time.Duration // true time since the beginning of the run
	seq    uint64
	events []event // a binary heap
}

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.seq < o.seq
}

// after schedules run in d from now.
func (w *world) after(d time.Duration, run func()) {
	w.seq++
	w.push(event{at: w.now + max(d, 0), seq: w.seq, run: run})
}

// step runs the next event if it is due by limit.
func (w *world) step(limit time.Duration) bool {
	if len(w.events) == 0 || w.events[0].at > limit {
		return false
	}
	e := w.pop()
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

// push and pop are container/heap without an allocation for each event.
func (w *world) push(e event) {
	w.events = append(w.events, e)
	h, i := w.events, len(w.events)-1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (w *world) pop() event {
	h := w.events
	first, n := h[0], len(h)-1
	h[0], h[n] = h[n], event{}
	h = h[:n]
	w.events = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			return first
		}
		if down+1 < n && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			return first
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}
