package leaderlease

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/leaderlease/go/leaderlease/core"
)

// waiter is one read that could not be served at once.
type waiter struct {
	done  func(ReadResult, error)
	stats *counters
	read  ReadResult
	// remote means that the read is a follower's, which counts it itself.
	remote bool
	// quorum means that no lease may answer: see Lease.ReadIndex.
	quorum bool

	// at and index are a moment after the read arrived at which this node led,
	// and its commit index then or later. A lease that turns out to have covered
	// at covers the read (docs/design.md, A read). at is 0 on followers, and as long as no
	// own-term entry is committed, and for reads that no lease may answer.
	at    core.Instant
	index uint64
	// round is the first round asked for after the read arrived.
	round uint64
	// in is the list that holds the waiter, if any; gone means that its caller
	// has left, and that the list drops it when it is met next.
	in   *waitlist
	gone bool
	// unhook makes the context that ends the read forget it, nil if there is none or
	// the caller sees to it.
	unhook func() bool
}

func (w *waiter) finish(err error) {
	if w.unhook != nil {
		w.unhook()
	}
	if err != nil {
		w.done(ReadResult{}, err)
		return
	}
	if w.remote {
		w.stats.answered.Add(1)
	} else {
		w.stats.paths.add(w.read.Path)
	}
	w.done(w.read, nil)
}

// waitlist holds waiters. Those that have left stay until half of the list is
// gone: reads are given up by the thousand when a quorum is lost, under the lock
// that the raft loop needs, so each must cost next to nothing.
type waitlist struct {
	all  []*waiter
	gone int
}

// len returns how many wait.
func (q *waitlist) len() int { return len(q.all) - q.gone }

func (q *waitlist) push(w *waiter) {
	w.in = q
	q.all = append(q.all, w)
}

// file puts w behind all with the same index or a lower one. Indexes mostly
// arrive in order.
func (q *waitlist) file(w *waiter) {
	w.in = q
	at, _ := slices.BinarySearchFunc(q.all, w.read.Index, func(o *waiter, index uint64) int {
		if o.read.Index <= index {
			return -1
		}
		return 1
	})
	q.all = slices.Insert(q.all, at, w)
}

// leave lets go of w, if it is in a list.
func (w *waiter) leave() {
	q := w.in
	if q == nil || w.gone {
		return
	}
	w.gone = true
	q.gone++
	q.compact()
}

// compact drops those that have left once they are more than half.
func (q *waitlist) compact() {
	if 2*q.gone > len(q.all) {
		q.all = slices.DeleteFunc(q.all, func(w *waiter) bool { return w.gone })
		q.gone = 0
	}
}

// take removes and returns the waiters that match.
func (q *waitlist) take(match func(*waiter) bool) (taken []*waiter) {
	kept := q.all[:0]
	for _, w := range q.all {
		switch {
		case w.gone:
		case match(w):
			w.in = nil
			taken = append(taken, w)
		default:
			kept = append(kept, w)
		}
	}
	clear(q.all[len(kept):])
	q.all, q.gone = kept, 0
	return taken
}

// reached removes and returns the waiters whose index is applied, from a list
// that is filed by index.
func (q *waitlist) reached(applied uint64) []*waiter {
	n := 0
	for n < len(q.all) && q.all[n].read.Index <= applied {
		n++
	}
	due := waitlist{all: q.all[:n:n]}
	taken := due.take(everyone)
	q.gone -= n - len(taken)
	q.all = q.all[n:]
	q.compact()
	return taken
}

func everyone(*waiter) bool { return true }

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
