package leaderlease

import (
	"context"
	"fmt"
	"log/slog"
)

// waitError is the error of a read whose context has ended. It matches the
// context's error, and says what the read was waiting for.
type waitError struct {
	err error
	// index is what Applied has to reach, applied what it has; index is 0 if the
	// read has none yet. Then it waits for a round: the try under way, by this node
	// if leader is 0. untaken means that nobody has called ReadIndex for it.
	index, applied uint64
	leader, try    uint64
	untaken        bool
	// uncommitted means that a reign has begun whose first entry is not committed.
	uncommitted bool
	misuse      error
}

// Error implements error.
func (e *waitError) Error() string {
	s := fmt.Sprintf("leaderlease: read: %v: waits for ", e.err)
	switch {
	case e.index > 0:
		s += fmt.Sprintf("Applied >= %d, is %d", e.index, e.applied)
	case e.uncommitted:
		s += "the first commit of the reign"
	case e.untaken:
		s += fmt.Sprintf("ReadIndex to be called with what ReadRequests delivers, try %d", e.try)
	case e.leader != 0:
		s += fmt.Sprintf("an answer of leader %d, try %d", e.leader, e.try)
	default:
		s += fmt.Sprintf("a quorum round, try %d", e.try)
	}
	if e.misuse != nil {
		s += ": " + e.misuse.Error()
	}
	return s
}

// Unwrap returns the context's error.
func (e *waitError) Unwrap() error { return e.err }

// giveUp forgets a read whose context has ended, and returns its error. It reports
// false, and no error, if the read is over, or about to be reported.
func (l *Lease) giveUp(w *waiter, ended error) (mine bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.in == nil || w.gone {
		return false, nil
	}
	mu := &l.mu
	e := &waitError{err: ended, misuse: l.wrongLocked()}
	if w.in == &mu.reads.barriers {
		e.index, e.applied = w.read.Index, l.applied.Load()
	} else {
		e.try, e.untaken = max(mu.reads.seq, w.round)-w.round+1, len(l.requests) > 0
		if mu.leader != l.id() {
			e.leader = mu.leader
		} else {
			e.uncommitted = !mu.lease.HasOwnTermCommit()
		}
	}
	w.leave()
	return true, e
}

// startUntil starts w, which ends with ctx at the latest.
func (l *Lease) startUntil(ctx context.Context, w *waiter) {
	if ctx.Done() == nil {
		l.start(w)
		return
	}
	if err := ctx.Err(); err != nil {
		w.done(ReadResult{}, err)
		return
	}
	ended := func() {
		if mine, err := l.giveUp(w, ctx.Err()); mine {
			w.done(ReadResult{}, err)
		}
	}
	w.unhook = context.AfterFunc(ctx, ended)
	l.start(w)
	if ctx.Err() != nil {
		ended() // it may have ended before there was a read to give up
	}
}

// warnLocked is asked with each tick. It says once an election timeout, and rarely
// from then on, that reads wait for a state machine that does not move.
func (l *Lease) warnLocked() {
	r, applied := &l.mu.reads, l.applied.Load()
	if r.barriers.len() == 0 || applied != r.seen {
		r.seen, r.still = applied, 0
		return
	}
	r.still++
	const rarely = 64
	if timeout := l.cfg.Raft.ElectionTick; r.still == timeout || r.still%(rarely*timeout) == 0 {
		l.logLocked(slog.LevelWarn, "reads wait for the state machine, and Applied does not move",
			"reads", r.barriers.len(), "index", r.barriers.all[0].read.Index, "applied", applied, "ticks", r.still)
	}
}
