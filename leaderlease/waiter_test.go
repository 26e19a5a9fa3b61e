package leaderlease

import (
	"context"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"
)

// A list of waiters does what a plain slice would, whoever leaves when.
func TestWaitlistIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q waitlist
		var model, everMade []*waiter
		drop := func(gone func(*waiter) bool) { model = slices.DeleteFunc(model, gone) }
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				w := &waiter{read: ReadResult{Index: rapid.Uint64Range(1, 9).Draw(t, "index")}}
				q.file(w)
				model, everMade = append(model, w), append(everMade, w)
				slices.SortStableFunc(model, func(a, b *waiter) int { return int(a.read.Index) - int(b.read.Index) })
			case 1:
				if len(everMade) > 0 {
					left := rapid.SampledFrom(everMade).Draw(t, "who")
					left.leave()
					drop(func(w *waiter) bool { return w == left })
				}
			case 2:
				applied := rapid.Uint64Range(0, 9).Draw(t, "applied")
				want := slices.Clone(model)
				want = slices.DeleteFunc(want, func(w *waiter) bool { return w.read.Index > applied })
				if got := q.reached(applied); !slices.Equal(got, want) {
					t.Fatalf("reached(%d) returned %d waiters, want %d, in order", applied, len(got), len(want))
				}
				drop(func(w *waiter) bool { return w.read.Index <= applied })
			case 3:
				odd := func(w *waiter) bool { return w.read.Index%2 == 1 }
				if got, want := len(q.take(odd)), len(model); got > want {
					t.Fatalf("take() returned %d waiters of %d", got, want)
				}
				drop(odd)
			}
			if q.len() != len(model) {
				t.Fatalf("len() = %d, want %d", q.len(), len(model))
			}
			if kept := len(q.all); kept > 2*len(model)+1 {
				t.Fatalf("%d waiters are kept for %d that wait, want at most twice as many", kept, len(model))
			}
		}
	})
}

// A sole voter that has just won answers ReadIndex at once and with whatever it
// knows to be committed; the answer may come to light together with the first
// commit of the reign. Found by review: index 1 was served at commit 6.
func TestRaftsAnswerBelowTheReignIsNotServed(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.Disabled = true })
	p.win(2)
	var got ReadResult
	p.StartRead(context.Background(), func(r ReadResult, err error) {
		if err != nil {
			t.Errorf("StartRead() = %v", err)
		}
		got = r
	})
	early := <-p.ReadRequests()
	p.Ready(raft.Ready{
		HardState:  p.hard(p.last),
		ReadStates: []raft.ReadState{{Index: p.last - 1, RequestCtx: early}},
	})
	p.Applied(p.last)
	if got != (ReadResult{}) {
		t.Fatalf("StartRead() was served %+v by an answer below the reign's first entry", got)
	}
	p.Ready(raft.Ready{ReadStates: []raft.ReadState{{Index: p.last, RequestCtx: <-p.ReadRequests()}}})
	if got.Index != p.last || got.Path != PathReadIndex {
		t.Errorf("StartRead() = %+v, want index %d by read_index", got, p.last)
	}
}

// Forwarded, the same answer must not leave.
func TestRaftsAnswerBelowTheReignDoesNotLeave(t *testing.T) {
	p := newPuppet(t)
	p.win(2)
	p.commitTo(p.last)
	for index, want := range map[uint64]int{p.last - 1: 0, p.last: 1} {
		resp := p.message(raftpb.MsgReadIndexResp, 1, 2)
		resp.Index = new(index)
		if msgs := p.Ready(raft.Ready{Messages: []*raftpb.Message{resp}}); len(msgs) != want {
			t.Errorf("Ready() let %d answers of index %d out, want %d", len(msgs), index, want)
		}
	}
}
