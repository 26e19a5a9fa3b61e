package raftsim

import "time"

// event is something that happens at an instant of virtual time. Events of one
// instant happen in the order in which they were planned.
type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.seq < f.seq
}

// agenda is a heap of events, the next one first.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) add(at time.Duration, run func()) {
	a.seq++
	a.heap = append(a.heap, event{at: at, seq: a.seq, run: run})
	for i := len(a.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a.heap[i].before(&a.heap[parent]) {
			return
		}
		a.heap[i], a.heap[parent] = a.heap[parent], a.heap[i]
		i = parent
	}
}

// next removes the earliest event. The agenda of a simulation is never empty.
func (a *agenda) next() event {
	first := a.heap[0]
	last := len(a.heap) - 1
	a.heap[0] = a.heap[last]
	a.heap[last] = event{}
	a.heap = a.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && a.heap[child+1].before(&a.heap[child]) {
			child++
		}
		if !a.heap[child].before(&a.heap[i]) {
			return first
		}
		a.heap[i], a.heap[child] = a.heap[child], a.heap[i]
		i = child
	}
}
