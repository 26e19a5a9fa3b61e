package proposals

import (
	"cmp"
	"errors"
	"slices"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// waiter is the state of a proposal for which a client waits.
type waiter struct {
	proposal proposal // as it was submitted
	// proposed is set when raft takes the proposal. From then on it may take effect, under this leader or a
	// later one, so a client that gets an error must not simply try again.
	proposed bool
	// requiredTerm is the RequiredTerm of the attempt that raft has taken, if the proposal is repeatable, else 0.
	requiredTerm uint64
	// leaderlessTicks counts the ticks without a leader while raft has not taken the proposal.
	leaderlessTicks int
	// inSnapshot means that raft had taken this attempt when a snapshot began to arrive, so the snapshot may
	// contain it. skipped means that such a snapshot has replaced the log here: this member never learns
	// whether the attempt was applied.
	inSnapshot, skipped bool
	// done has room for the one outcome, so that the loop and the applier never wait for a client.
	done chan outcome
}

func (w *waiter) bytes() int64 { return int64(len(w.proposal.entry.GetData())) }

// send ends the wait for w, which may be nil. The goroutine that has removed w calls it once.
func (w *waiter) send(o outcome) {
	if w != nil {
		w.done <- o
	}
}

// outcome is the result of a proposal's entry, or the reason why it is not known.
type outcome struct {
	result store.Result
	err    error
}

// add registers a waiter for q. It precedes the push to the loop, because the entry may be applied right after that.
// add enforces the limits of memory: without a leader, waiters stay until their clients give up.
func (p *Pending) add(q proposal) (*waiter, error) {
	w := &waiter{proposal: q, done: make(chan outcome, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.waiters) >= p.cfg.MaxCount || p.mu.bytes+w.bytes() > p.cfg.MaxBytes {
		return nil, ErrTooManyRequests
	}
	p.mu.waiters[q.id] = w
	p.mu.bytes += w.bytes()
	return w, nil
}

// remove removes a waiter and returns it, nil if there is none. The caller sends its outcome, or is the client
// that gives up.
func (p *Pending) remove(id uint64) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.removeLocked(id)
}

func (p *Pending) removeLocked(id uint64) *waiter {
	w := p.mu.waiters[id]
	if w != nil {
		delete(p.mu.waiters, id)
		p.mu.bytes -= w.bytes()
	}
	return w
}

// The applier calls the following methods, except SnapshotArriving.

// Finish sends the result of an applied entry to the client that waits for it. The applier calls it for every entry
// that is not a configuration change. On a follower, and after a restart, most entries have no waiter.
//
// If a repeatable proposal was fenced off, its client goes on waiting, because TermReached proposes it again.
func (p *Pending) Finish(r store.Result) {
	if r.ID != 0 && !(errors.Is(r.Err, store.ErrFenced) && p.isRepeatable(r.ID)) {
		p.remove(r.ID).send(outcome{result: r})
	}
}

func (p *Pending) isRepeatable(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.mu.waiters[id]
	return w != nil && w.proposal.repeatable
}

// Claim removes the waiter of a proposal and returns a function that sends its outcome. The caller calls it
// once. From Claim on, a change of the leader does not end the wait.
func (p *Pending) Claim(id uint64) (send func(store.Result, error)) {
	w := p.remove(id)
	return func(r store.Result, err error) { w.send(outcome{r, err}) }
}

// TermReached submits again each repeatable proposal that raft took in an earlier term and that was not applied. The
// applier calls it before it applies the first entry of term. All entries after that one have at least that term, so
// an attempt of an earlier term that is not applied by now never will be. An attempt that a restored snapshot may
// contain fails with ErrLeaderChanged.
func (p *Pending) TermReached(term uint64) {
	again := p.takeVoid(term)
	if len(again) == 0 {
		return
	}
	p.voided.Add(uint64(len(again)))
	p.cfg.Logger.Info("proposed again, as a former leader has not replicated them", "proposals", len(again), "term", term)
	p.submitted.Push(again...)
}

// takeVoid returns the proposals to submit again, and fails those of which this member cannot learn the outcome.
func (p *Pending) takeVoid(term uint64) (again []proposal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, w := range p.mu.waiters {
		switch {
		case !w.proposed || w.requiredTerm == 0 || w.requiredTerm >= term:
		case w.skipped:
			p.removeLocked(id).send(outcome{err: ErrLeaderChanged})
		default:
			w.proposed = false
			again = append(again, w.proposal)
		}
	}
	// The order does not matter, but a simulation must run the same way each time it gets the same seed.
	slices.SortFunc(again, func(a, b proposal) int { return cmp.Compare(a.id, b.id) })
	return again
}

// SnapshotArriving records that a snapshot begins to arrive. The leader made it earlier, so it contains none of the
// proposals that raft takes from now on. The goroutine that receives the snapshot calls it.
func (p *Pending) SnapshotArriving() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.mu.waiters {
		w.inSnapshot = w.proposed
	}
}

// SnapshotRestored records that the snapshot has replaced entries here. The applier calls it before the store
// shows what the snapshot contains.
func (p *Pending) SnapshotRestored() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.mu.waiters {
		w.skipped = w.skipped || w.inSnapshot
	}
}

// The raft loop and its Queue call the following methods. FailAll is called when the member stops.

// markProposed marks those of qs that have a waiter as taken by raft, and returns them in the array of qs. The loop
// calls it right before it steps them, and not after: a client that gave up in between would get ErrNoLeader,
// although its write takes effect.
func (p *Pending) markProposed(qs []proposal) []proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := qs[:0]
	for _, q := range qs {
		if w := p.mu.waiters[q.id]; w != nil {
			w.proposed, w.requiredTerm, w.inSnapshot, w.skipped = true, q.requiredTerm, false, false
			kept = append(kept, q)
		}
	}
	return kept
}

// unmarkProposed undoes markProposed, because raft has not taken qs.
func (p *Pending) unmarkProposed(qs []proposal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range qs {
		if w := p.mu.waiters[q.id]; w != nil {
			w.proposed = false
		}
	}
}

// deleteAbandoned deletes proposals without a waiter, in place.
func (p *Pending) deleteAbandoned(qs []proposal) []proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(qs, func(q proposal) bool { return p.mu.waiters[q.id] == nil })
}

// failRefused fails a proposal that raft has refused for good.
func (p *Pending) failRefused(id uint64, err error) { p.remove(id).send(outcome{err: err}) }

// FailProposed fails with ErrLeaderChanged all proposals that raft has taken: the entries may be lost with the
// leader's log, or the next leader may commit them. The others wait for the next leader.
func (p *Pending) FailProposed() {
	p.failIf(ErrLeaderChanged, func(w *waiter) bool { return w.proposed })
}

// FailUnrepeatable is FailProposed for proposals that are not repeatable. The repeatable ones wait for TermReached.
func (p *Pending) FailUnrepeatable() {
	p.failIf(ErrLeaderChanged, func(w *waiter) bool { return w.proposed && w.requiredTerm == 0 })
}

// FailAll fails all proposals, when the member stops.
func (p *Pending) FailAll(err error) { p.failIf(err, func(*waiter) bool { return true }) }

// tickLeaderless counts a tick without a leader, and fails proposals with FailWithoutLeader after
// ElectionTicks.
func (p *Pending) tickLeaderless() {
	p.failIf(ErrNoLeader, func(w *waiter) bool {
		if w.proposed || !w.proposal.failWithoutLeader {
			return false
		}
		w.leaderlessTicks++
		return w.leaderlessTicks > p.cfg.ElectionTicks
	})
}

func (p *Pending) failIf(err error, match func(*waiter) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, w := range p.mu.waiters {
		if match(w) {
			p.removeLocked(id).send(outcome{err: err}) // does not block: done has room
		}
	}
}
