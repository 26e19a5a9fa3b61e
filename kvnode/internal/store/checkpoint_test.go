package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

var errDisk = errors.New("disk: input/output error")

// script applies n entries of all kinds that depend on seed only. It frees compacted versions after
// each entry, because what is left of a key depends on whether it is freed before the next write.
// So checkpoints always have the same steps.
func script(r *replica, seed uint64, n int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range n {
		key := fmt.Sprintf("k%02d", rnd.IntN(12))
		var req *pb.InternalRaftRequest
		switch rnd.IntN(8) {
		case 0:
			req = del(key, "k08")
		case 1:
			req = compact(max(r.Revision()-rnd.Int64N(6), 0))
		case 2:
			req = txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut(key, "t"), opDelete("k03", "k05"), opPut("tail", "x")}})
		default:
			req = put(key, fmt.Sprint(rnd.Uint32()))
		}
		_, _ = r.request(req) // all replicas refuse the same compactions
		freeCompacted(r)
	}
}

// freeCompacted frees all compacted versions.
func freeCompacted(r *replica) {
	r.t.Helper()
	if err := r.FinishCompaction(context.Background()); err != nil {
		r.t.Fatalf("FinishCompaction() = %v", err)
	}
}

// failing makes all steps of one kind fail.
func failing(step storetest.Op) func(storetest.Op) error {
	return func(op storetest.Op) error {
		if op == step {
			return errDisk
		}
		return nil
	}
}

// failAt makes the n-th step fail.
func failAt(n int, failed *bool) func(storetest.Op) error {
	return func(storetest.Op) error {
		if n--; n == 0 {
			*failed = true
			return errDisk
		}
		return nil
	}
}

func TestCheckpointAsksTheLogFirst(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	defer r.Close()
	r.put("a", "1")
	r.put("a", "2")
	_, err := r.SaveCheckpoint(func(index uint64) error {
		if index != 2 || disk.Commits() != 0 {
			t.Errorf("before(%d) after %d commits, want before(2) after none", index, disk.Commits())
		}
		return errDisk
	})
	if !errors.Is(err, errDisk) || disk.Commits() != 0 {
		t.Errorf("SaveCheckpoint() = %v after %d commits, want %v and no commit", err, disk.Commits(), errDisk)
	}
	checkpoint(t, r.Store)
	checkpoint(t, r.Store)
	if disk.Commits() != 1 {
		t.Errorf("%d commits, want 1: nothing was new the second time", disk.Commits())
	}
}

// Open returns the errors of EnsureDurable and View: it uses no data that it cannot make durable.
func TestOpenFailsWithoutItsDisk(t *testing.T) {
	for _, step := range []storetest.Op{storetest.OpEnsureDurable, storetest.OpView} {
		disk := storetest.NewDisk()
		disk.Fail(failing(step))
		if _, err := store.Open(store.Config{Backend: disk.Open()}); !errors.Is(err, errDisk) {
			t.Errorf("Open() with %s failing = %v, want %v", step, err, errDisk)
		}
	}
	if _, err := store.Open(store.Config{}); err == nil {
		t.Error("Open() without backend = nil, want an error")
	}
}

// A checkpoint contains everything besides keys, too.
func TestEverythingButKeysSurvives(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	r.put("a", "1")
	r.put("a", "2")
	r.must(compact(2))
	r.must(activate(1<<63, pb.AlarmType_NOSPACE))
	conf := &raftpb.ConfState{Voters: []uint64{1 << 63, 2}, Learners: []uint64{3}}
	r.ApplyConf(5, 7, conf, &store.MemberChange{Set: &store.Member{ID: 1 << 63, PeerURLs: []string{"http://h:1"}}})
	r.ApplyConf(6, 7, nil, &store.MemberChange{Remove: 9})
	conf.Voters[0] = 0 // the store has a copy
	c := checkpoint(t, r.Store)
	members, alarms := r.Members(), r.Alarms()
	if err := r.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	s := openBolt(t, path)
	defer s.Close()
	got := s.Durable()
	if got.Index != 6 || got.Term != 7 || got.Revision != 3 || !proto.Equal(got.ConfState, c.ConfState) || got.ConfState.GetVoters()[0] != 1<<63 {
		t.Errorf("Durable() = %+v, want %+v", got, c)
	}
	if s.CompactRevision() != 2 || s.Applied() != 6 || len(s.Alarms()) != 1 || !proto.Equal(s.Alarms()[0], alarms[0]) {
		t.Errorf("compacted %d, applied %d, alarms %v, want 2, 6, %v", s.CompactRevision(), s.Applied(), s.Alarms(), alarms)
	}
	if fmt.Sprint(s.Members()) != fmt.Sprint(members) {
		t.Errorf("Members() = %v, want %v", s.Members(), members)
	}
}

// openWithSmallCommits opens a store with small commits.
func openWithSmallCommits(t fataler, b store.Backend) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Backend: b, CommitBytes: 400})
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	return s
}

// fullScript applies n entries of all kinds, including TTL leases and alarms.
func fullScript(r *replica, seed uint64, n int) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	for range n {
		id := rnd.Int64N(4) + 1
		switch rnd.IntN(8) {
		case 0:
			_, _ = r.request(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: rnd.Int64N(100) + 1}})
		case 1:
			_, _ = r.request(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: id}})
		case 2:
			_, _ = r.request(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Append(nil, "l", id), Lease: id}})
		case 3:
			r.must(activate(uint64(id), pb.AlarmType_NOSPACE))
			_, _ = r.request(del("k08", ""))
			_, _ = r.request(del("k09", ""))
			r.must(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: uint64(id), Alarm: pb.AlarmType_NOSPACE}})
		default:
			script(r, rnd.Uint64(), 1)
		}
		freeCompacted(r)
	}
}

// replayed returns a store with the entries of log.
func replayed(t fataler, log [][]byte) *store.Store {
	t.Helper()
	s := openStore(t, newBackend())
	replay(s, log)
	return s
}

// sameState compares everything in a checkpoint, at each readable revision.
func sameState(t fataler, want, got *store.Store) {
	t.Helper()
	about := func(s *store.Store) string {
		var text strings.Builder
		fmt.Fprint(&text, s.Applied(), s.Revision(), s.CompactRevision(), s.Alarms(), *s.Members())
		for id := range int64(6) {
			l, ok := s.TTLLease(id)
			fmt.Fprint(&text, l, ok, s.TTLKeys(id))
		}
		for rev := max(s.CompactRevision(), 1); rev <= s.Revision(); rev++ {
			h, err := s.HashKV(rev)
			fmt.Fprint(&text, h, err)
		}
		return text.String()
	}
	if w, g := about(want), about(got); w != g {
		t.Fatalf("the state is\n%s\nwant\n%s", g, w)
	}
}

// Each commit of a checkpoint leaves the state that the entries up to its index produce.
func TestEachCommitOfACheckpointIsOneOfItsIndex(t *testing.T) {
	for seed := range uint64(6) {
		disk := storetest.NewDisk()
		r := &replica{t: t, Store: openWithSmallCommits(t, disk.Open())}
		want := openStore(t, newBackend())
		var indexes []uint64
		disk.Fail(func(op storetest.Op) error {
			if op != storetest.OpCommitted {
				return nil
			}
			found := openStore(t, disk.Copy(true).Open())
			indexes = append(indexes, found.Applied())
			replay(want, r.log[:found.Applied()])
			sameState(t, want, found)
			shut(t, found)
			return nil
		})
		for part := range uint64(4) {
			fullScript(r, seed*10+part, 60)
			before := len(indexes)
			c := checkpoint(t, r.Store)
			if len(indexes)-before < 5 {
				t.Fatalf("seed %d: a checkpoint of 60 entries has %d commits, want many", seed, len(indexes)-before)
			}
			if last := indexes[len(indexes)-1]; c.Index != r.Applied() || last != c.Index || !slices.IsSorted(indexes) {
				t.Fatalf("seed %d: SaveCheckpoint() = %d with commits of %v, want them to rise to %d", seed, c.Index, indexes, r.Applied())
			}
		}
		disk.Fail(nil)
		again := openStore(t, disk.Open())
		sameState(t, r.Store, again)
		shut(t, again)
		shut(t, want)
		shut(t, r)
	}
}

// A checkpoint, in one commit or in several, fails at each of its steps. Then the process ends, or
// the power fails. The disk then has the state of some index that is not below Durable, and the log
// restores the rest. The next checkpoint continues where this one failed.
func TestCrashAtEveryStepOfACheckpoint(t *testing.T) {
	for _, c := range []struct {
		name  string
		open  func(fataler, store.Backend) *store.Store
		least int
	}{{"one commit", openStore, 20}, {"small commits", openWithSmallCommits, 50}} {
		t.Run(c.name, func(t *testing.T) {
			step := 1
			for crashAt(t, c.open, step) {
				step++
			}
			if step < c.least {
				t.Errorf("a checkpoint has %d steps, want more", step-1)
			}
		})
	}
}

// crashAt fails a checkpoint at a step, and reports whether the checkpoint has that many steps.
func crashAt(t *testing.T, open func(fataler, store.Backend) *store.Store, step int) (failed bool) {
	t.Helper()
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: open(t, disk.Open())}
	fullScript(r, 1, 20)
	checkpoint(t, r.Store)
	fullScript(r, 2, 40)
	disk.Fail(failAt(step, &failed))
	_, err := r.SaveCheckpoint(nil)
	disk.Fail(nil)
	if failed != errors.Is(err, errDisk) {
		t.Fatalf("step %d: failed %v, SaveCheckpoint() = %v", step, failed, err)
	}
	for _, powerFails := range []bool{false, true} {
		crashed := open(t, disk.Copy(powerFails).Open())
		if got := crashed.Applied(); got < r.Durable().Index {
			t.Fatalf("step %d: %d is left after a crash, and %d was durable", step, got, r.Durable().Index)
		}
		want := replayed(t, r.log[:crashed.Applied()])
		sameState(t, want, crashed)
		replay(crashed, r.log)
		sameState(t, r.Store, crashed)
		shut(t, want)
		shut(t, crashed)
	}
	fullScript(r, 3, 10)
	if c := checkpoint(t, r.Store); c.Index != r.Applied() {
		t.Fatalf("step %d: the next checkpoint is of %d, want %d", step, c.Index, r.Applied())
	}
	again := openStore(t, disk.Open())
	sameState(t, r.Store, again)
	shut(t, again)
	shut(t, r)
	return failed
}

// The deletions of a large compaction are split into several commits.
func TestACompactionIsDeletedInSeveralCommits(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openWithSmallCommits(t, disk.Open())}
	for i := range 1000 {
		r.put("k", fmt.Sprint(i))
	}
	checkpoint(t, r.Store)
	r.must(compact(r.Revision()))
	freeCompacted(r)
	before := disk.Commits()
	checkpoint(t, r.Store)
	// 128 versions are freed at a time.
	if got := disk.Commits() - before; got < 8 || disk.Records() != 1 {
		t.Errorf("999 versions are deleted in %d commits, and %d are left, want 8 commits or more and 1", got, disk.Records())
	}
	shut(t, r)
}

// A checkpoint excludes entries that are applied while it runs, so it ends.
func TestACheckpointEndsWhileOthersWrite(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openWithSmallCommits(t, disk.Open())}
	fullScript(r, 1, 50)
	index := r.Applied()
	disk.Fail(func(op storetest.Op) error {
		if op == storetest.OpUpdate {
			for i := range 10 {
				r.put("more", fmt.Sprint(i))
			}
		}
		return nil
	})
	c, err := r.SaveCheckpoint(func(asked uint64) error {
		if asked != index {
			t.Errorf("before(%d), want before(%d)", asked, index)
		}
		return nil
	})
	disk.Fail(nil)
	if err != nil || c.Index != index || r.Applied() < index+50 {
		t.Errorf("SaveCheckpoint() = %d, %v with %d applied, want %d", c.Index, err, r.Applied(), index)
	}
	crashed := openStore(t, disk.Copy(true).Open())
	replay(crashed, r.log)
	sameState(t, r.Store, crashed)
	if c := checkpoint(t, r.Store); c.Index != r.Applied() {
		t.Errorf("the next checkpoint is of %d, want %d", c.Index, r.Applied())
	}
	shut(t, crashed)
	shut(t, r)
}

// A commit that reported an error may be durable all the same. It must not bring back a key that
// was deleted and compacted afterwards.
func TestFailedCheckpointBringsNoKeyBack(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	r.put("a", "1")
	disk.Fail(failing(storetest.OpCommitted))
	if _, err := r.SaveCheckpoint(nil); !errors.Is(err, errDisk) {
		t.Fatalf("SaveCheckpoint() = %v, want %v", err, errDisk)
	}
	disk.Fail(nil)
	r.must(del("a", ""))
	r.put("b", "1")
	r.must(compact(r.Revision()))
	freeCompacted(r)
	checkpoint(t, r.Store)
	again := openStore(t, disk.Open())
	if kv, _ := again.Get([]byte("a")); kv != nil {
		t.Errorf("Get(a) = %v after a restart, want nothing: the key was deleted", kv)
	}
	sameHash(t, r.Store, again)
	shut(t, again)
	shut(t, r)
}
