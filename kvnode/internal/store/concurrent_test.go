package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// pair holds the keys of these tests. One transaction puts the same value to all of them, or
// deletes all of them.
var pair = []string{"pair/a", "pair/b", "pair/c", "pair/d"}

func pairTxn(i int) *pb.InternalRaftRequest {
	t := &pb.TxnRequest{}
	if i%11 == 10 {
		t.Success = append(t.Success, opDelete("pair/", "pair0"))
		return txn(t)
	}
	for _, key := range pair {
		t.Success = append(t.Success, opPut(key, fmt.Sprint(i)))
	}
	return txn(t)
}

// checkPair fails unless resp shows one revision: all keys with one value and mod revision, or no
// key.
func checkPair(t *testing.T, resp *pb.RangeResponse) {
	t.Helper()
	kvs := resp.GetKvs()
	if len(kvs) != 0 && len(kvs) != len(pair) {
		t.Errorf("a read saw %d of %d keys: %v", len(kvs), len(pair), resp)
		return
	}
	for _, kv := range kvs {
		if string(kv.GetValue()) != string(kvs[0].GetValue()) || kv.GetModRevision() != kvs[0].GetModRevision() {
			t.Errorf("a read saw two revisions: %v", resp)
		}
	}
}

// readUntil calls read in n goroutines until stop is closed, at least once each.
func readUntil(wg *sync.WaitGroup, stop <-chan struct{}, n int, read func()) {
	for range n {
		wg.Go(func() {
			for {
				read()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
}

// Readers see one revision while entries are applied, the history is compacted close to the newest
// revision, and snapshots are restored.
func TestReadersSeeOneRevision(t *testing.T) {
	r := newReplica(t)
	r.must(pairTxn(0))
	var (
		wg        sync.WaitGroup
		stop      = make(chan struct{})
		overtaken atomic.Int64
		served    atomic.Int64
	)
	all := &pb.RangeRequest{Key: []byte("pair/"), RangeEnd: []byte("pair0")}
	readUntil(&wg, stop, 2, func() {
		resp, err := r.Range(t.Context(), all)
		if err != nil {
			t.Errorf("Range(newest) = %v", err)
			return
		}
		checkPair(t, resp)
	})
	readUntil(&wg, stop, 2, func() {
		// An old revision is read as it was, or refused.
		at := &pb.RangeRequest{Key: all.GetKey(), RangeEnd: all.GetRangeEnd(), Revision: max(r.Revision()-3, 1)}
		resp, err := r.Range(t.Context(), at)
		switch {
		case err == nil:
			served.Add(1)
			checkPair(t, resp)
			if kvs := resp.GetKvs(); len(kvs) > 0 && kvs[0].GetModRevision() > at.GetRevision() {
				t.Errorf("Range(revision %d) saw revision %d", at.GetRevision(), kvs[0].GetModRevision())
			}
		case errors.Is(err, rpctypes.ErrGRPCCompacted), errors.Is(err, rpctypes.ErrGRPCFutureRev):
			overtaken.Add(1)
		default:
			t.Errorf("Range(%d) = %v", at.GetRevision(), err)
		}
	})
	readUntil(&wg, stop, 1, func() {
		// kept is never deleted, so Get must always find it.
		if kv, rev := r.Get([]byte("kept")); kv == nil && rev > 3 || kv.GetModRevision() > rev {
			t.Errorf("Get(kept) = %v as of revision %d", kv, rev)
		}
	})
	writePairs(t, r, 700)
	close(stop)
	wg.Wait()
	if served.Load() == 0 || overtaken.Load() == 0 {
		t.Errorf("%d old reads served, %d overtaken, want some of both", served.Load(), overtaken.Load())
	}
}

func writePairs(t *testing.T, r *replica, n int) {
	t.Helper()
	dir := t.TempDir()
	for i := 1; i < n; i++ {
		r.put("kept", fmt.Sprint(i))
		r.must(pairTxn(i))
		switch {
		case i%200 == 0:
			checkpoint(t, r.Store)
			snap := saveSnapshot(t, r.Store, dir)
			if err := r.Restore(snap); err != nil {
				t.Fatalf("Restore() = %v", err)
			}
			replay(r.Store, r.log)
		case i%3 == 0:
			r.must(compact(r.Revision() - 1))
		case i%50 == 1:
			checkpoint(t, r.Store)
		}
	}
}

// Get finds a key that is written and compacted as fast as possible: it retries after a compaction.
func TestGetSeesKeysThatACompactionPassed(t *testing.T) {
	r := newReplica(t)
	r.put("k", "0")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var last [3]int64
	for i := range last {
		readUntil(&wg, stop, 1, func() {
			kv, rev := r.Get([]byte("k"))
			if kv == nil || kv.GetModRevision() != rev || rev < last[i] {
				t.Errorf("Get(k) = %v as of revision %d after %d, want the version of that revision", kv, rev, last[i])
			}
			last[i] = rev
		})
	}
	for range 2000 {
		r.put("k", "1")
		r.must(compact(r.Revision()))
	}
	close(stop)
	wg.Wait()
}

// Reads, writes and snapshots continue while a checkpoint is blocked.
func TestReadsAndWritesGoOnDuringACheckpoint(t *testing.T) {
	r := newReplica(t)
	r.put("a", "1")
	entered, leave := make(chan struct{}), make(chan struct{})
	done := make(chan store.Checkpoint)
	go func() {
		c, err := r.SaveCheckpoint(func(uint64) error {
			close(entered)
			<-leave
			return nil
		})
		if err != nil {
			t.Errorf("SaveCheckpoint() = %v", err)
		}
		done <- c
	}()
	<-entered
	r.put("a", "2")
	r.must(compact(2))
	if kv, _ := r.Get([]byte("a")); string(kv.GetValue()) != "2" {
		t.Errorf("Get(a) during a checkpoint = %v, want 2", kv)
	}
	snap, err := r.OpenSnapshot()
	if err != nil {
		t.Fatalf("OpenSnapshot() during a checkpoint = %v", err)
	}
	defer snap.Close()
	close(leave)
	if c := <-done; c.Index != 1 || c.Revision != 2 {
		t.Errorf("SaveCheckpoint() = %+v, want the state before it was entered, index 1 and revision 2", c)
	}
}

// Events come in order, after their revision is visible, as watch.Hub requires.
func TestEventsComeInOrderOfRevisions(t *testing.T) {
	var got []string
	var s *store.Store
	s, err := store.Open(store.Config{Backend: newBackend(), Events: func(rev int64, writes []store.Write) {
		if s.Revision() != rev {
			t.Errorf("events of revision %d while %d is visible", rev, s.Revision())
		}
		for _, e := range eventsOf(writes) {
			got = append(got, fmt.Sprintf("%d %v %s=%s@%d was %s", rev, e.GetType(), e.GetKv().GetKey(), e.GetKv().GetValue(), e.GetKv().GetModRevision(), e.GetPrevKv().GetValue()))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, Store: s}
	defer r.Close()
	r.put("a", "1")
	r.must(del("x", ""))
	r.must(txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("b", "2"), opDelete("a", ""), opPut("a", "3")}}))
	want := []string{"2 PUT a=1@2 was ", "3 PUT b=2@3 was ", "3 DELETE a=@3 was 1", "3 PUT a=3@3 was "}
	if !slices.Equal(got, want) {
		t.Errorf("events = %q, want %q", got, want)
	}
}
