package leaderlease

import (
	"cmp"
	"log/slog"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Event says that the lease was gained or lost.
type Event struct {
	// Held is whether the lease is held from now on.
	Held bool
	// Term is the reign that gained or lost it.
	Term uint64
	// Status is Valid, or why it was lost.
	Status Status
	// Missed is how many events the receiver was too slow for before this one.
	Missed int
}

// watchBuffer is how many events a watcher may fall behind.
const watchBuffer = 16

type watcher struct {
	events chan Event
	missed int
}

// Watch delivers an event whenever the lease is gained or lost, beginning with
// the present state, until stop or Close is called, which closes the channel;
// after Close it delivers that state and is closed already. A receiver that falls
// behind loses the oldest events and is told how many. Loss by time alone is
// noticed at the next Tick: to stop work in time use Do, to check use TryRead.
func (l *Lease) Watch() (events <-chan Event, stop func()) {
	w := &watcher{events: make(chan Event, watchBuffer)}
	if l == nil {
		w.send(Event{Status: core.Disabled})
		close(w.events)
		return w.events, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(l.nowLocked())
	w.send(Event{Held: l.mu.held != 0, Term: l.mu.term, Status: l.view.Load().Check(l.mu.last)})
	if l.mu.watchers == nil {
		l.mu.watchers = make(map[*watcher]struct{})
	}
	l.mu.watchers[w] = struct{}{}
	if l.mu.closed {
		l.unwatchLocked(w)
	}
	return w.events, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unwatchLocked(w)
	}
}

// unwatchLocked closes w's channel, once.
func (l *Lease) unwatchLocked(w *watcher) {
	if _, ok := l.mu.watchers[w]; ok {
		delete(l.mu.watchers, w)
		close(w.events)
	}
}

// send never blocks.
func (w *watcher) send(e Event) {
	for {
		e.Missed = w.missed
		select {
		case w.events <- e:
			w.missed = 0
			return
		default:
		}
		select {
		case lost := <-w.events:
			w.missed += 1 + lost.Missed
		default:
		}
	}
}

// noteLocked notices that the lease was gained or lost.
func (l *Lease) noteLocked(now core.Instant) {
	mu := &l.mu
	v := l.view.Load()
	s := v.Check(now)
	if len(mu.workers) > 0 {
		l.stopWorkLocked(v, s)
	}
	var held uint64
	if s == core.Valid {
		held = v.Term
	}
	if held == mu.held {
		return
	}
	lost := mu.held
	mu.held = held
	e := Event{Held: held != 0, Term: cmp.Or(held, lost), Status: s}
	if e.Held {
		l.logLocked(slog.LevelInfo, "lease gained", "term", e.Term)
	} else {
		l.stats.losses[s].Add(1)
		l.logLocked(slog.LevelInfo, "lease lost", "term", e.Term, "reason", s.String())
	}
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindHeld, At: now, Term: e.Term, Status: s, OK: e.Held})
	for w := range mu.watchers {
		w.send(e)
	}
}
