package kvnode

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// waiters are the proposals of this member that are under way, by ID. Each is there from
// before it is handed to the loop until somebody has taken it out, and only who takes it
// out sends its outcome: so a proposal has one outcome, and no sender blocks.
//
// A client that goes away takes its own out (remove). The command may take effect all the
// same; finish finds nobody then.
type waiters struct {
	// maxCount and maxBytes bound what clients can make this member keep in memory. More is
	// refused with ErrTooManyRequests, at once: a client that waits holds memory, too.
	maxCount int   // immutable
	maxBytes int64 // immutable
	// lastID is that of the newest proposal. The applier finds the waiter again by it. Other
	// members begin at random, too, so an entry of theirs has the ID of a waiter here with a
	// probability of one in 2^64 for each pair.
	lastID atomic.Uint64
	// mu guards all, bytes and each waiter's proposed. It is held for moments, by clients, the
	// loop and the applier alike; nothing that waits is done under it.
	mu struct {
		sync.Mutex
		all   map[uint64]*waiter
		bytes int64 // of all
	}
}

// waiter is one proposal, from the view of the goroutine that waits for its outcome.
type waiter struct {
	proposal proposal // as it was at first; its entry's bytes count until it is taken out
	// proposed means that raft has taken it: from then on it may take effect, in this
	// reign or, after its leader's end, in a later one. So its outcome is unknown to a
	// client that is told of an error, which must not simply try again.
	proposed bool
	// leaderless is the number of ticks without a leader, while raft has not taken it.
	leaderless int
	// fence is that of the attempt that raft has taken, 0 if it has none.
	fence uint64
	// early means that raft had taken this attempt when a snapshot began to arrive, so that the
	// snapshot may contain it. skipped means that such a snapshot has replaced the log here, so
	// that this member never learns whether the attempt was applied.
	early, skipped bool
	// done takes the outcome. It is buffered by one, so that the loop and the applier never
	// wait for a client.
	done chan outcome
}

func (p *waiter) bytes() int64 { return int64(len(p.proposal.entry.GetData())) }

// tell ends the wait, if somebody waits. Whoever has taken p out of the map calls it, once, so
// there is room in done, and no caller blocks: neither the loop nor the applier may.
func (p *waiter) tell(o outcome) {
	if p != nil {
		p.done <- o
	}
}

// outcome is what became of a proposal: the result of its entry, or why that is not known.
type outcome struct {
	result store.Result
	err    error
}

// init begins the IDs at random: what a member proposed before it was restarted
// may still be applied, and must not wake anybody.
func (w *waiters) init(maxCount int, maxBytes int64) {
	w.maxCount, w.maxBytes = maxCount, maxBytes
	w.mu.all = make(map[uint64]*waiter)
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	w.lastID.Store(binary.BigEndian.Uint64(seed[:]))
}

// nextID returns a new ID, which is not 0: that is the ID of entries for which nobody has
// ever waited, such as the one with which a leader begins its term.
func (w *waiters) nextID() uint64 {
	for {
		if id := w.lastID.Add(1); id != 0 {
			return id
		}
	}
}

// add registers a proposal of that size, or refuses it. It comes before the proposal is
// handed to the loop: the entry may be applied before Propose goes on.
func (w *waiters) add(q proposal) (*waiter, error) {
	p := &waiter{proposal: q, done: make(chan outcome, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Both bounds: entries may be empty, and one may be as large as MaxRequestBytes.
	// Parked ones count: without a leader nothing is taken out but by clients that give up.
	if len(w.mu.all) >= w.maxCount || w.mu.bytes+p.bytes() > w.maxBytes {
		return nil, ErrTooManyRequests
	}
	w.mu.all[q.id] = p
	w.mu.bytes += p.bytes()
	return p, nil
}

// len is how many proposals are under way, parked ones among them, for Status.
func (w *waiters) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.all)
}

// remove forgets a proposal, and returns it if it was there. To whom it is returned the outcome
// belongs from then on: a client that gives up and gets nil back knows that one is on its way,
// and takes that (await).
func (w *waiters) remove(id uint64) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removeLocked(id)
}

func (w *waiters) removeLocked(id uint64) *waiter {
	p := w.mu.all[id]
	if p != nil {
		delete(w.mu.all, id)
		w.mu.bytes -= p.bytes()
	}
	return p
}

// finish tells the goroutine that waits for r. It is called for every entry that this
// member applies; most of a follower's, and all from before a restart, are others'.
//
// An attempt that was appended in another term than its own has ended before that (void): what it was
// for waits for another attempt.
func (w *waiters) finish(r store.Result) {
	if r.ID != 0 && !(errors.Is(r.Err, store.ErrFenced) && w.goesOn(r.ID)) {
		w.remove(r.ID).tell(outcome{result: r})
	}
}

// goesOn reports whether a proposal outlives an attempt that was void.
func (w *waiters) goesOn(id uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.mu.all[id]
	return p != nil && p.proposal.again
}

// fail ends the wait for id with an error: raft has not taken it, and never will. The loop alone
// may know that, since nobody else hands anything to raft.
func (w *waiters) fail(id uint64, err error) {
	w.remove(id).tell(outcome{err: err})
}

// propose marks those that raft is about to take, and returns the ones that
// somebody still waits for. The loop calls it right before it steps them, and park if
// raft does not take them after all.
func (w *waiters) propose(ps []proposal) []proposal {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := ps[:0] // in place: the loop has ps to itself
	for _, p := range ps {
		if q := w.mu.all[p.id]; q != nil {
			q.proposed, q.fence, q.early, q.skipped = true, p.fence, false, false
			kept = append(kept, p)
		}
	}
	return kept
}

// awaited returns those of ps that somebody still waits for: nobody waits for ever
// (RequestTimeout), so what waits for a leader that does not come stays bounded, without a
// bound of its own. The loop asks at each tick.
func (w *waiters) awaited(ps []proposal) []proposal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(ps, func(p proposal) bool { return w.mu.all[p.id] == nil })
}

// park takes back propose: raft has not taken them after all. The end of a reign does not fail
// them then, and a client whose time is over while there is no leader is told ErrNoLeader, by
// which it knows that nothing was done.
func (w *waiters) park(ps []proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range ps {
		if q := w.mu.all[p.id]; q != nil {
			q.proposed = false
		}
	}
}

// void takes back what raft took in a term before this one, once all entries up to those of this
// term are applied, and returns it. What a snapshot may hold is in doubt, and fails.
func (w *waiters) void(term uint64) (again []proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, p := range w.mu.all {
		switch {
		case !p.proposed || p.fence == 0 || p.fence >= term:
		case p.skipped:
			w.removeLocked(id).tell(outcome{err: ErrLeaderChanged})
		default:
			p.proposed = false
			again = append(again, p.proposal)
		}
	}
	// The map has no order. Clients' have none among those that are under way together, but a
	// schedule that is played twice must go alike.
	slices.SortFunc(again, func(a, b proposal) int { return cmp.Compare(a.id, b.id) })
	return again
}

// snapshotArrives notes that a snapshot begins to arrive. The leader has made it before, so it
// contains none of the proposals that raft takes from now on.
func (w *waiters) snapshotArrives() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.mu.all {
		p.early = p.proposed
	}
}

// snapshotRestored notes that a snapshot has replaced entries here.
func (w *waiters) snapshotRestored() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.mu.all {
		p.skipped = p.skipped || p.early
	}
}

// failProposed fails everything that raft has taken: the entries may be lost with this leader's
// log, or be committed by the next one. What raft has not taken yet goes to the next leader,
// and its client notices nothing.
func (w *waiters) failProposed(err error) { w.failIf(err, func(p *waiter) bool { return p.proposed }) }

// failUnfenced is failProposed for what has no fence of ours, at the end of a reign. The rest waits
// for void.
func (w *waiters) failUnfenced(err error) {
	w.failIf(err, func(p *waiter) bool { return p.proposed && p.fence == 0 })
}

// failAll fails everything, when the node stops. Clients that come later see that themselves.
func (w *waiters) failAll(err error) { w.failIf(err, func(*waiter) bool { return true }) }

func (w *waiters) failIf(err error, is func(*waiter) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, p := range w.mu.all {
		if is(p) {
			// Under mu, which is no harm: done has room for the one outcome.
			w.removeLocked(id).tell(outcome{err: err})
		}
	}
}
