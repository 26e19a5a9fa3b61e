package kvnode

import (
	"errors"
	"testing"

	"github.com/leaderlease/go/kvnode/store"
)

func newWaiters(maxCount int, maxBytes int64) *waiters {
	w := &waiters{}
	w.init(maxCount, maxBytes)
	return w
}

func TestWaitersAreBounded(t *testing.T) {
	w := newWaiters(2, 100)
	for id := range uint64(2) {
		if _, err := w.add(id+1, 40); err != nil {
			t.Fatalf("add(%d) = %v, want nil", id+1, err)
		}
	}
	if _, err := w.add(3, 1); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("add() of a third = %v, want ErrTooManyRequests", err)
	}
	w.finish(store.Result{ID: 1})
	if _, err := w.add(3, 61); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("add() of 61 bytes beside 40 = %v, want ErrTooManyRequests", err)
	}
	if _, err := w.add(3, 60); err != nil {
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
	taken, _ := w.add(1, 1)
	parked, _ := w.add(2, 1)
	waiting, _ := w.add(3, 1)
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
	_, _ = w.add(1, 1)
	_, _ = w.add(2, 1)
	w.remove(1)
	if ps := w.propose([]proposal{{id: 1}, {id: 2}}); len(ps) != 1 || ps[0].id != 2 {
		t.Errorf("propose() = %v, want only 2", ps)
	}
}
