package linz

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecorderMergesClientsByCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder()
		var wg sync.WaitGroup
		for i := range 3 {
			c := r.Client()
			wg.Go(func() {
				time.Sleep(time.Duration(3-i) * time.Millisecond)
				c.Call(Op{Kind: Put, Key: "k", Value: "v"})
				time.Sleep(time.Second)
				c.Return(func(op *Op) { op.Outcome, op.Revision = OK, int64(i) })
				c.Call(Op{Kind: Get, Key: "k"})
			})
		}
		wg.Wait()
		h := r.History()
		if len(h) != 6 {
			t.Fatalf("History() has %d operations, want 6", len(h))
		}
		for i, want := range []int{2, 1, 0} {
			at := time.Duration(i+1) * time.Millisecond
			if op := h[i]; op.Client != want || op.Call != at || op.Return != at+time.Second || op.Outcome != OK {
				t.Errorf("History()[%d] = %v, want client %d at %v", i, &op, want, at)
			}
			if op := h[i+3]; op.Kind != Get || op.Outcome != Unknown {
				t.Errorf("History()[%d] = %v, want an unknown read", i+3, &op)
			}
		}
	})
}

func TestKeysAreRenamedBeforeTheyOutgrowTheLimit(t *testing.T) {
	k := NewKeys("p", 2, 3)
	var names []string
	for range 4 {
		names = append(names, k.Key(0))
	}
	names = append(names, k.Key(1))
	k.Rename()
	k.Rename()
	names = append(names, k.Key(0), k.Key(1))
	const want = "p0/0 p0/0 p0/0 p0/1 p1/0 p0/3 p1/2"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("keys are %s, want %s", got, want)
	}
	if k.Len() != 2 {
		t.Errorf("Len() = %d, want 2", k.Len())
	}
	if k := NewKeys("", 1, MaxOps+1); k.limit != MaxOps {
		t.Errorf("limit = %d, want %d", k.limit, MaxOps)
	}
}

func BenchmarkRecord(b *testing.B) {
	c := NewRecorder().Client()
	b.ReportAllocs()
	for b.Loop() {
		c.Call(Op{Kind: Get, Key: "k"})
		c.Return(func(op *Op) { op.Outcome, op.Revision = OK, 1 })
	}
}
