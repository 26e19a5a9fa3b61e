package store

import (
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func newTestWriter(st *state) *writer { return &writer{st: st, base: st.revision.Load()} }

func mustPut(t *testing.T, w *writer, key, value string) {
	t.Helper()
	if _, err := w.put(&pb.PutRequest{Key: []byte(key), Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// A chain answers what a walk over its versions finds, at each revision and each moment
// of a transaction.
func TestAChainKnowsItsLiveVersion(t *testing.T) {
	st := newState()
	check := func(when string) {
		t.Helper()
		c := st.index.find([]byte("k"))
		if c == nil {
			return
		}
		for rev := range st.revision.Load() + 3 {
			if got, want := c.live(rev), c.at(rev).live(); got != want {
				t.Errorf("%s: live(%d) = %v, want %v", when, rev, got, want)
			}
		}
	}
	for i := range 30 {
		w := newTestWriter(st)
		if i%7 == 6 {
			if _, err := w.deleteRange(&pb.DeleteRangeRequest{Key: []byte("k")}); err != nil {
				t.Fatal(err)
			}
			check("deleted")
		}
		if i%7 != 6 || i%2 == 0 {
			mustPut(t, w, "k", fmt.Sprint(i))
		}
		check("written")
		if i%3 == 2 {
			w.rollback()
			check("taken back")
			continue
		}
		st.revision.Store(w.base + 1)
		check("published")
	}
}

// No reader sees what a transaction that is taken back has written, nor misses what is
// there.
func TestReadersDoNotSeeWhatIsTakenBack(t *testing.T) {
	st := newState()
	key := []byte("k")
	w := newTestWriter(st)
	mustPut(t, w, "k", "0")
	st.revision.Store(w.base + 1)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				rev := st.revision.Load()
				if v := st.index.find(key).live(rev); v == nil || v.mod > rev || string(v.GetValue()) == "taken back" {
					t.Errorf("live(%d) = %v", rev, v)
					return
				}
			}
		})
	}
	for i := range 20_000 {
		w := newTestWriter(st)
		if i%4 == 0 {
			mustPut(t, w, "k", "kept")
			st.revision.Store(w.base + 1)
			continue
		}
		mustPut(t, w, "k", "taken back")
		w.rollback()
	}
	close(stop)
	wg.Wait()
}
