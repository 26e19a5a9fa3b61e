package kvnode

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

func newWaiters(maxCount int, maxBytes int64) *waiters {
	w := &waiters{}
	w.init(maxCount, maxBytes)
	return w
}

func sized(id uint64, bytes int) proposal {
	return proposal{id: id, entry: &raftpb.Entry{Data: make([]byte, bytes)}}
}

func TestWaitersAreBounded(t *testing.T) {
	w := newWaiters(2, 100)
	for id := range uint64(2) {
		if _, err := w.add(sized(id+1, 40)); err != nil {
			t.Fatalf("add(%d) = %v, want nil", id+1, err)
		}
	}
	if _, err := w.add(sized(3, 1)); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("add() of a third = %v, want ErrTooManyRequests", err)
	}
	w.finish(store.Result{ID: 1})
	if _, err := w.add(sized(3, 61)); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("add() of 61 bytes beside 40 = %v, want ErrTooManyRequests", err)
	}
	if _, err := w.add(sized(3, 60)); err != nil {
		t.Errorf("add() of 60 bytes beside 40 = %v, want nil", err)
	}
	w.remove(2)
	w.remove(3)
	if n := w.len(); n != 0 || w.mu.bytes != 0 {
		t.Errorf("%d waiters with %d bytes are left, want none", n, w.mu.bytes)
	}
}

// Only what raft has taken is in doubt when the leader changes.
func TestLeaderChangeFailsWhatWasProposed(t *testing.T) {
	w := newWaiters(10, 100)
	taken, _ := w.add(sized(1, 1))
	parked, _ := w.add(sized(2, 1))
	waiting, _ := w.add(sized(3, 1))
	w.propose([]proposal{{id: 1}, {id: 2}})
	w.park([]proposal{{id: 2}})
	w.failProposed(ErrLeaderChanged)
	if o := <-taken.done; !errors.Is(o.err, ErrLeaderChanged) {
		t.Errorf("what raft had taken = %v, want ErrLeaderChanged", o.err)
	}
	for _, p := range []*waiter{parked, waiting} {
		select {
		case o := <-p.done:
			t.Errorf("what raft had not taken = %v, want it to wait", o.err)
		default:
		}
	}
}

func TestProposeDropsTheAbandoned(t *testing.T) {
	w := newWaiters(10, 100)
	_, _ = w.add(sized(1, 1))
	_, _ = w.add(sized(2, 1))
	w.remove(1)
	if ps := w.propose([]proposal{{id: 1}, {id: 2}}); len(ps) != 1 || ps[0].id != 2 {
		t.Errorf("propose() = %v, want only 2", ps)
	}
}

// attempt is what raft has taken with that fence, and may be proposed again.
func attempt(w *waiters, id, fence uint64) *waiter {
	q := proposal{id: id, entry: &raftpb.Entry{Data: []byte{1}}, again: fence != 0, fence: fence}
	p, _ := w.add(q)
	w.propose([]proposal{q})
	return p
}

// waits reports whether nobody has told p its outcome.
func waits(p *waiter) bool { return len(p.done) == 0 }

// A new term fails what no fence keeps from taking effect in it, and nothing else.
func TestATermFailsWhatHasNoFence(t *testing.T) {
	w := newWaiters(10, 100)
	bare, fenced := attempt(w, 1, 0), attempt(w, 2, 7)
	w.failUnfenced(ErrLeaderChanged)
	if waits(bare) || !waits(fenced) {
		t.Errorf("without a fence it waits: %v, with one: %v; want only that", waits(bare), waits(fenced))
	}
	w.failProposed(ErrLeaderChanged)
	if o := <-fenced.done; !errors.Is(o.err, ErrLeaderChanged) {
		t.Errorf("what a leader without a quorum had taken = %v, want ErrLeaderChanged", o.err)
	}
}

// Once an entry of a term is applied, what was handed out in former terms is proposed again, in order.
func TestWhatIsVoidIsProposedAgain(t *testing.T) {
	w := newWaiters(10, 100)
	for id := uint64(6); id > 2; id-- {
		attempt(w, id, 7)
	}
	now, parked := attempt(w, 2, 8), attempt(w, 1, 7)
	w.park([]proposal{parked.proposal})
	again := w.void(8)
	for i, want := range []uint64{3, 4, 5, 6} {
		if len(again) != 4 || again[i].id != want {
			t.Fatalf("void(8) = %v, want 3 to 6", again)
		}
	}
	if !waits(now) || !waits(parked) {
		t.Error("what is of this term, or nowhere, has an outcome")
	}
	if again := w.void(8); len(again) != 0 {
		t.Errorf("void(8) again = %v, want nothing: nobody has proposed them meanwhile", again)
	}
	w.finish(store.Result{ID: 3, Err: store.ErrFenced})
	if w.len() != 6 {
		t.Errorf("%d waiters are left of 6: an attempt that was void has ended the wait for the next", w.len())
	}
	w.propose(again[:1])
	w.finish(store.Result{ID: 3})
	if w.len() != 5 {
		t.Errorf("%d waiters are left of 6 once an attempt has taken effect, want 5", w.len())
	}
}

// What a leader has proposed for its own term is not proposed in another.
func TestAFenceThatIsNotOursIsAnOutcome(t *testing.T) {
	w := newWaiters(10, 100)
	p := attempt(w, 1, 0)
	w.finish(store.Result{ID: 1, Err: store.ErrFenced})
	if waits(p) {
		t.Error("fenced work that was void waits, want the outcome")
	}
}

// A snapshot may contain an attempt that was under way when it began to arrive, and none that
// began later, also before it was restored.
func TestWhatASnapshotMayHoldIsInDoubt(t *testing.T) {
	w := newWaiters(10, 100)
	before, refused := attempt(w, 1, 7), attempt(w, 3, 7)
	w.snapshotArrives()
	attempt(w, 4, 7)
	w.snapshotRestored()
	attempt(w, 2, 7)
	w.park([]proposal{refused.proposal}) // raft was about to take it, and has not
	w.propose([]proposal{refused.proposal})
	if !waits(before) {
		t.Error("it has an outcome at once, want it to wait: it may come behind the snapshot")
	}
	if again := w.void(8); len(again) != 3 || again[0].id != 2 || again[1].id != 3 || again[2].id != 4 {
		t.Errorf("void(8) = %v, want 2, 3 and 4", again)
	}
	if waits(before) {
		t.Fatal("what a snapshot may hold waits, want ErrLeaderChanged")
	}
	if o := <-before.done; !errors.Is(o.err, ErrLeaderChanged) {
		t.Errorf("what a snapshot may hold = %v, want ErrLeaderChanged", o.err)
	}
}

// A snapshot that did not arrive whole, or that raft has refused, replaces nothing.
func TestASnapshotThatIsNotRestoredLeavesNoDoubt(t *testing.T) {
	w := newWaiters(10, 100)
	p := attempt(w, 1, 7)
	w.snapshotArrives()
	if again := w.void(8); len(again) != 1 || !waits(p) {
		t.Errorf("void(8) = %v, want the proposal", again)
	}
}

// Raft and the links may hold the entry of an attempt before.
func TestAnAttemptHasAnEntryOfItsOwn(t *testing.T) {
	data, err := (&store.Command{ID: 300, Fence: 7}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	first := proposal{id: 300, entry: &raftpb.Entry{Data: data}, again: true, fence: 7}
	was := string(data)
	if same := first.in(7); same.entry != first.entry {
		t.Error("in the same term it is another entry, want the same: nothing is copied")
	}
	next := first.in(300)
	c, err := store.DecodeCommand(next.entry.GetData())
	if err != nil || c.ID != 300 || c.Fence != 300 || next.fence != 300 || next.entry == first.entry || string(first.entry.GetData()) != was {
		t.Errorf("in(300) = %+v of %+v, %v, and the first is %x, want %x", c, next, err, first.entry.GetData(), was)
	}
	bare := proposal{id: 1, entry: first.entry}
	if bare.in(8) != bare {
		t.Error("what must not be proposed again has another fence")
	}
}
