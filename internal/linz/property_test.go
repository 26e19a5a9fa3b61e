package linz

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawn is an operation with the instant at which it takes effect.
type drawn struct {
	Op
	effect time.Duration
	hit    bool // whether a CAS expects what it will find
	lost   bool // its answer never arrives
	never  bool // nor does it take effect
}

// farRevision is never reached.
const farRevision = 1000

// drawHistory draws what clients of one right store see: each operation takes
// effect at one instant between its call and its return, or, if its answer is
// lost, at any time after its call or never.
func drawHistory(t *rapid.T) ([]Op, Final) {
	var all []*drawn
	for client := range rapid.IntRange(1, 5).Draw(t, "clients") {
		var now time.Duration
		for i := range rapid.IntRange(1, 8).Draw(t, "operations") {
			d := &drawn{Op: Op{
				Client: client,
				Kind:   Kind(rapid.IntRange(int(Get), int(CAS)).Draw(t, "kind")),
				Key:    rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
				Value:  fmt.Sprintf("c%d-%d", client, i),
			}}
			d.hit = rapid.Bool().Draw(t, "hit")
			d.Call = now + rapid.Custom(pause).Draw(t, "think")
			d.effect = d.Call + rapid.Custom(pause).Draw(t, "wait")
			d.Return = d.effect + rapid.Custom(pause).Draw(t, "answer")
			if d.lost = rapid.IntRange(0, 5).Draw(t, "lost") == 0; d.lost {
				d.effect += time.Duration(rapid.IntRange(0, 100).Draw(t, "late"))
				d.never = rapid.Bool().Draw(t, "never")
				d.Return = d.Call
			}
			now = d.Return
			all = append(all, d)
		}
	}
	return play(all)
}

func pause(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(0, 10).Draw(t, "")) }

// play applies the operations in the order of their effects.
func play(all []*drawn) ([]Op, Final) {
	slices.SortStableFunc(all, func(a, b *drawn) int { return cmp.Compare(a.effect, b.effect) })
	store := Final{Revision: 1, Keys: make(map[string]Version)}
	told := make(map[int64]bool) // revisions that clients learn of
	var history []Op
	for _, d := range all {
		if mod := store.Keys[d.Key].Mod; d.Kind == CAS {
			d.Expect = farRevision
			if d.hit && (mod == 0 || told[mod]) {
				d.Expect = mod
			}
		}
		told[store.Revision+1] = !d.lost
		if !d.never {
			apply(&store, &d.Op)
		}
		if d.lost {
			d.Op = Op{Client: d.Client, Kind: d.Kind, Key: d.Key, Value: d.Value, Expect: d.Expect, Call: d.Call}
		}
		history = append(history, d.Op)
	}
	return history, store
}

// apply is the specification once more, written as a store.
func apply(s *Final, op *Op) {
	op.Outcome = OK
	old := s.Keys[op.Key]
	set := func(v string) {
		s.Revision++
		s.Keys[op.Key] = Version{v, s.Revision}
	}
	switch op.Kind {
	case Get:
		op.Seen = old
	case Put:
		set(op.Value)
	case Delete:
		if op.Seen = old; old.Mod != 0 {
			s.Revision++
			delete(s.Keys, op.Key)
		}
	case CAS:
		if op.Swapped = old.Mod == op.Expect; op.Swapped {
			set(op.Value)
		} else {
			op.Seen = old
		}
	}
	op.Revision = s.Revision
}

// Check accepts all answers of a single correct store, also if clients miss some of them.
func TestHistoriesOfARightStorePass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history, final := drawHistory(t)
		if err := Check(history, final, 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

// Negative control: in any history, one answer that is older than a revision known before the
// request is found.
func TestAnyStaleReadIsFound(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		history, final := drawHistory(t)
		read, old := staleRead(history)
		if read == nil {
			return
		}
		// The altered read claims the newest revision, so that its header is no evidence.
		was := read.Seen
		if read.Seen = old; old == was {
			return
		}
		found++
		rep := Check(history, final, 0)
		if got := oracles(rep); !slices.Contains(got, "porcupine") {
			t.Fatalf("a read of %v instead of %v: oracles %q object: %v", old, was, got, read)
		}
	})
	if found == 0 {
		t.Error("no history had a read to falsify")
	}
}

// staleRead returns a read, and a version of its key that an acknowledged write
// had replaced before the read was called.
func staleRead(history []Op) (read *Op, old Version) {
	for i := range history {
		read := &history[i]
		if read.Kind != Get || read.Outcome != OK {
			continue
		}
		var replaced Version // the second newest
		newest := Version{}
		for j := range history {
			w := &history[j]
			if w.Key == read.Key && w.wrote() && w.Kind != Delete && w.Return < read.Call && w.Revision > newest.Mod {
				replaced, newest = newest, w.Version()
			}
		}
		if replaced.Mod != 0 {
			return read, replaced
		}
	}
	return nil, Version{}
}

// Negative control: an acknowledged write that is missing from the store is
// found.
func TestAnyLostWriteIsFound(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		history, final := drawHistory(t)
		var newest *Op
		for i := range history {
			if op := &history[i]; op.wrote() && op.Kind == Put && final.Keys[op.Key] == op.Version() {
				newest = op
			}
		}
		if newest == nil {
			return
		}
		found++
		delete(final.Keys, newest.Key)
		for i := range history {
			if op := &history[i]; op.Kind == Delete && op.Outcome == Unknown && op.Key == newest.Key {
				return // which may have taken it
			}
		}
		rep := Check(history, final, 0)
		if got := oracles(rep); !slices.Contains(got, "missing") || !slices.Contains(got, "porcupine") {
			t.Fatalf("%v is lost: oracles %q object", newest, got)
		}
	})
	if found == 0 {
		t.Error("no history had a write to lose")
	}
}
