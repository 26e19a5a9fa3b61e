package leaderlease

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/fence"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Event reports the state of the lease at the call of Watch, or that the lease was gained or lost.
type Event struct {
	// Held is whether the lease is held from now on.
	Held bool
	// Term is the term of the lease, or in the first event the newest term that this node knows.
	Term uint64
	// Status is StatusValid, or why the lease is not held.
	Status Status
	// Missed is the number of events before this one that were dropped because the receiver was slow.
	Missed int
}

// watchBuffer is the number of events that wait for a slow receiver.
const watchBuffer = 16

type watcher struct {
	events chan Event
	missed int
}

// Watch delivers the present state, and an event whenever the lease is gained or lost. stop and Close close the
// channel. After Close, Watch delivers only StatusClosed. A slow receiver loses the oldest events: see Event.Missed.
// The end of a lease by time alone is delivered at the next Tick. To stop work in time use Do, to check use TryRead.
func (l *Lease) Watch() (events <-chan Event, stop func()) {
	w := &watcher{events: make(chan Event, watchBuffer)}
	if l == nil {
		w.send(Event{Status: core.Disabled})
		close(w.events)
		return w.events, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteHeldLocked(l.nowLocked())
	w.send(Event{Held: l.mu.heldTerm != 0, Term: l.mu.term, Status: l.view.Load().Check(l.mu.last)})
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

// noteHeldLocked tells the watchers if the lease was gained or lost, and ends work that has no valid lease.
func (l *Lease) noteHeldLocked(now core.Instant) {
	mu := &l.mu
	v := l.view.Load()
	s := v.Check(now)
	if len(mu.work) > 0 {
		l.stopWorkLocked(v, s)
	}
	var held uint64
	if s == core.Valid {
		held = v.Term
	}
	if held == mu.heldTerm {
		return
	}
	lost := mu.heldTerm
	mu.heldTerm = held
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

// Token returns a fencing token for work under the present lease: (term, commit index). It is above all tokens of
// earlier leaders; two tokens of one term may be equal. It fails with a *NoLeaseError if the lease is not valid. The
// resource must check the token (package fence), since the lease can be lost at any moment after this call.
func (l *Lease) Token() (fence.Token, error) {
	if l == nil {
		return fence.Token{}, errNoLibrary
	}
	v, _, s := l.check()
	if s != core.Valid {
		return fence.Token{}, l.noLease(s)
	}
	return fence.Token{Term: v.Term, Index: l.commit.Load()}, nil
}

// Context returns a child of parent that ends, with a *NoLeaseError as its cause, when the lease of this term is no
// longer valid. It also ends when stop is called, which the caller must do. Context fails at once if there is no
// lease.
//
// The end of a context does not stop a request that has left already: work with effects outside this process needs
// a Token.
func (l *Lease) Context(parent context.Context) (ctx context.Context, stop func(), err error) {
	if l == nil {
		return nil, nil, errNoLibrary
	}
	// parent may be the embedder's own implementation of Context. The context that ends under the lock of the
	// lease is a child of base, so that no method of parent runs there.
	base, leave := context.WithCancel(parent)
	ctx, cancel := context.WithCancelCause(base)
	w, err := l.startWork(cancel)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, func() { l.stopWork(w); leave() }, nil
}

func (l *Lease) startWork(cancel context.CancelCauseFunc) (*work, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	v := l.view.Load()
	if s := v.Check(now); s != core.Valid {
		return nil, l.noLeaseLocked(s)
	}
	w := &work{term: v.Term, cancel: cancel}
	if l.mu.work == nil {
		l.mu.work = make(map[*work]struct{})
	}
	l.mu.work[w] = struct{}{}
	w.timer = time.AfterFunc(v.Remaining(now, l.cfg.Duration), func() { l.checkWork(w) })
	return w, nil
}

// Do runs work with a Context of the lease and returns the error of work. If that is the context's error, Do
// returns the context's cause. So it returns a *NoLeaseError if there was no lease at the start, or if work
// returned the error of its context because the lease was lost. Work that returns nil has succeeded, even if
// the lease was lost meanwhile.
func (l *Lease) Do(parent context.Context, work func(context.Context) error) error {
	ctx, stop, err := l.Context(parent)
	if err != nil {
		return err
	}
	defer stop()
	err = work(ctx)
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return context.Cause(ctx)
	}
	return err
}

// work is one use of Context or Do. It must end with the lease, and its timer runs until it ends.
type work struct {
	term   uint64
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// checkWork runs when the lease that the timer was set for has ended. Usually a renewal has come since.
func (l *Lease) checkWork(w *work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, running := l.mu.work[w]; !running {
		return
	}
	now := l.nowLocked()
	l.noteHeldLocked(now)
	if _, running := l.mu.work[w]; running {
		w.timer.Reset(l.view.Load().Remaining(now, l.cfg.Duration))
	}
}

// stopWorkLocked ends the work of all terms without a valid lease.
func (l *Lease) stopWorkLocked(v *view, s Status) {
	for w := range l.mu.work {
		if s == core.Valid && v.Term == w.term {
			continue
		}
		w.timer.Stop()
		delete(l.mu.work, w)
		w.cancel(l.noLeaseLocked(s))
	}
}

func (l *Lease) stopWork(w *work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.timer.Stop()
	delete(l.mu.work, w)
	w.cancel(context.Canceled)
}

func (l *Lease) noLease(s Status) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noLeaseLocked(s)
}
