package store

import (
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
				if v := st.index.find(key).at(rev).live(); v == nil || v.mod > rev || string(v.GetValue()) == "taken back" {
					t.Errorf("at(%d) = %v", rev, v)
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
