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
	// remote means that a follower has forwarded the read. The follower counts it.
	remote bool
	// needsRound means that no lease may answer: see Lease.ReadIndex.
	needsRound bool

	// at is an instant after the read arrived, at which this node led. commitAt is the commit index at that
	// instant or later. A lease that covers that instant covers the read (docs/design.md, Joined reads). at is 0 on
	// followers, before the first commit of the term, and for reads that need a round.
	at       core.Instant
	commitAt uint64
	// round is the first round requested after the read arrived.
	round uint64
	// in is the list that holds the waiter, if any. gone means that the read was given up; the list drops
	// the waiter later.
	in   *waitlist
	gone bool
	// unhook stops the context.AfterFunc of the read, if there is one.
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

// waitlist holds waiters. Abandoned waiters stay in the list until they are more than half of it. When a quorum is
// lost, thousands of reads may be given up under the lock that the raft loop needs, so giving one up must be cheap.
type waitlist struct {
	all  []*waiter
	gone int
}

// len returns the number of waiters that are not abandoned.
func (q *waitlist) len() int { return len(q.all) - q.gone }

func (q *waitlist) push(w *waiter) {
	w.in = q
	q.all = append(q.all, w)
}

// insert keeps the list sorted by index.
func (q *waitlist) insert(w *waiter) {
	w.in = q
	at, _ := slices.BinarySearchFunc(q.all, w.read.Index, func(o *waiter, index uint64) int {
		if o.read.Index <= index {
			return -1
		}
		return 1
	})
	q.all = slices.Insert(q.all, at, w)
}

// abandon marks w as gone, if it is in a list.
func (w *waiter) abandon() {
	q := w.in
	if q == nil || w.gone {
		return
	}
	w.gone = true
	q.gone++
	q.compact()
}

// compact drops abandoned waiters once they are more than half.
func (q *waitlist) compact() {
	if 2*q.gone > len(q.all) {
		q.all = slices.DeleteFunc(q.all, func(w *waiter) bool { return w.gone })
		q.gone = 0
	}
}

// take removes the waiters that match and returns them.
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

// takeApplied removes the waiters up to index applied from a list sorted by index, and returns them.
func (q *waitlist) takeApplied(applied uint64) []*waiter {
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

// waitError is the error of a read after the end of its context. It matches the
// context's error, and says what the read was waiting for.
type waitError struct {
	err error
	// index is the index that Applied must reach, and applied the present one. index is 0 if the read has
	// none yet. Then the read waits for the try-th round since it arrived. leader makes that round; 0 means
	// this node. untaken means that the embedding has not taken the request from ReadRequests.
	index, applied uint64
	leader, try    uint64
	untaken        bool
	// uncommitted means that this node leads, and the first entry of its term is not committed.
	uncommitted bool
	misuse      error
}

// Error implements error.
func (e *waitError) Error() string {
	s := fmt.Sprintf("leaderlease: read: %v: waits for ", e.err)
	switch {
	case e.index > 0:
		s += fmt.Sprintf("Applied to reach %d, now %d", e.index, e.applied)
	case e.uncommitted:
		s += "the first commit of the term"
	case e.untaken:
		s += fmt.Sprintf("ReadIndex to be called with what ReadRequests delivers, try %d", e.try)
	case e.leader != 0:
		s += fmt.Sprintf("an answer of leader %x, try %d", e.leader, e.try)
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

// giveUp removes a read after the end of its context, and returns its error. It reports false if the read is over, or
// about to be reported.
func (l *Lease) giveUp(w *waiter, ended error) (mine bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.in == nil || w.gone {
		return false, nil
	}
	mu := &l.mu
	e := &waitError{err: ended, misuse: l.wrongLocked()}
	if w.in == &mu.reads.awaitingApplied {
		e.index, e.applied = w.read.Index, l.applied.Load()
	} else {
		e.try, e.untaken = max(mu.reads.seq, w.round)-w.round+1, len(l.requests) > 0
		if mu.leader != l.id() {
			e.leader = mu.leader
		} else {
			e.uncommitted = !mu.lease.HasOwnTermCommit()
		}
	}
	w.abandon()
	return true, e
}

// startUntil starts w, and gives it up when ctx ends.
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
		ended() // ctx may have ended before the read was in a list
	}
}

// warnLocked runs at each tick. It warns after an election timeout, and rarely from then on, that reads wait while
// Applied does not move.
func (l *Lease) warnLocked() {
	r, applied := &l.mu.reads, l.applied.Load()
	if r.awaitingApplied.len() == 0 || applied != r.seen {
		r.seen, r.stuck = applied, 0
		return
	}
	r.stuck++
	const rarely = 64
	if timeout := l.cfg.Raft.ElectionTick; r.stuck == timeout || r.stuck%(rarely*timeout) == 0 {
		l.logLocked(slog.LevelWarn, "reads wait for the state machine, and Applied does not move",
			"reads", r.awaitingApplied.len(), "index", r.awaitingApplied.all[0].read.Index, "applied", applied, "ticks", r.stuck)
	}
}
