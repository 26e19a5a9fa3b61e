package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

var errDisk = errors.New("disk: input/output error")

// script feeds r with n entries of all kinds, the same for every seed. What one of
// them compacts is freed before the next, for what is left of a key that is written
// again depends on which comes first: so checkpoints have the same steps each time.
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
		_, _ = r.request(req) // Compactions may be refused, by all replicas alike.
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

// failAt makes the n-th step of the given kinds fail.
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
	_, err := r.Checkpoint(func(index uint64) error {
		if index != 2 || disk.Commits() != 0 {
			t.Errorf("before(%d) after %d commits, want before(2) after none", index, disk.Commits())
		}
		return errDisk
	})
	if !errors.Is(err, errDisk) || disk.Commits() != 0 {
		t.Errorf("Checkpoint() = %v after %d commits, want %v and no commit", err, disk.Commits(), errDisk)
	}
	checkpoint(t, r.Store)
	checkpoint(t, r.Store)
	if disk.Commits() != 1 {
		t.Errorf("%d commits, want 1: nothing was new the second time", disk.Commits())
	}
}

// TestOpenFailsWithoutItsDisk also shows that the error of a load is not lost.
func TestOpenFailsWithoutItsDisk(t *testing.T) {
	disk := storetest.NewDisk()
	disk.Fail(func(storetest.Op) error { return errDisk })
	if _, err := store.Open(store.Config{Backend: disk.Open()}); !errors.Is(err, errDisk) {
		t.Errorf("Open() = %v, want %v", err, errDisk)
	}
	if _, err := store.Open(store.Config{}); err == nil {
		t.Error("Open() without backend = nil, want an error")
	}
}

// TestEverythingButKeysSurvives checks what a checkpoint holds besides keys.
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
	conf.Voters[0] = 0 // the store keeps a copy
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

// TestTrimmedHistoryLeavesTheDisk compacts everything: what is gone from memory
// must go from the disk with the next checkpoint.
func TestTrimmedHistoryLeavesTheDisk(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	for i := range 300 {
		r.put("hot", fmt.Sprint(i))
	}
	r.put("gone", "1")
	r.must(del("gone", ""))
	checkpoint(t, r.Store)
	if got := disk.Records(); got != 302 {
		t.Fatalf("%d records, want 302", got)
	}
	r.must(compact(r.Revision())) // The tombstone is of this very revision, and stays.
	waitTrimmed(t, r, disk, 2)
	r.put("hot", "last")
	r.must(compact(r.Revision()))
	waitTrimmed(t, r, disk, 1)
	shut(t, r)
	again := openStore(t, disk.Open())
	defer again.Close()
	sameHash(t, r.Store, again)
}

// waitTrimmed makes a checkpoint when the trimmer is done, and expects it to leave
// want records.
func waitTrimmed(t *testing.T, r *replica, disk *storetest.Disk, want int) {
	t.Helper()
	freeCompacted(r)
	checkpoint(t, r.Store)
	if got := disk.Records(); got != want {
		t.Fatalf("%d records after a checkpoint, want %d", got, want)
	}
}

// TestHistoryFreedBeforeACheckpointIsNeverWritten compacts what no checkpoint
// has seen.
func TestHistoryFreedBeforeACheckpointIsNeverWritten(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	defer r.Close()
	for i := range 300 {
		r.put("hot", fmt.Sprint(i))
	}
	r.must(compact(r.Revision()))
	freeCompacted(r)
	checkpoint(t, r.Store)
	if got := disk.Records(); got != 1 {
		t.Errorf("%d records, want 1", got)
	}
}

// TestHashDoesNotDependOnTiming runs one script on replicas that make
// checkpoints, restart and trim at different times.
func TestHashDoesNotDependOnTiming(t *testing.T) {
	for seed := range uint64(20) {
		plain := &replica{t: t, Store: openStore(t, newBackend())}
		script(plain, seed, 120)
		disk := storetest.NewDisk()
		other := openStore(t, disk.Open())
		rnd := rand.New(rand.NewPCG(seed, 2))
		for i, data := range plain.log {
			other.Apply(uint64(i+1), 1, data)
			switch rnd.IntN(10) {
			case 0:
				checkpoint(t, other)
			case 1:
				shut(t, other)
				other = openStore(t, disk.Open())
				replay(other, plain.log[:i+1])
			}
		}
		for rev := plain.CompactRevision(); rev <= plain.Revision(); rev++ {
			got, err := other.HashKV(rev)
			if want, _ := plain.HashKV(rev); err != nil || got != want {
				t.Fatalf("seed %d: HashKV(%d) = %+v, %v, want %+v", seed, rev, got, err, want)
			}
		}
		shut(t, plain)
		shut(t, other)
	}
}

func TestHashCoversEveryField(t *testing.T) {
	seen := map[uint32]string{}
	for name, reqs := range map[string][]*pb.InternalRaftRequest{
		"base":          {put("a", "1")},
		"value":         {put("a", "2")},
		"key":           {put("b", "1")},
		"border":        {put("a1", "")},
		"version":       {put("a", "1"), put("a", "1"), compact(3)},
		"create":        {put("x", "1"), del("x", ""), put("a", "1"), compact(4)},
		"mod":           {put("a", "0"), put("z", "1"), del("z", ""), put("a", "1"), compact(5)},
		"tombstone":     {put("a", "1"), del("a", "")},
		"sub":           {txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("a", "1"), opPut("b", "1")}})},
		"sub reordered": {txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("b", "1"), opPut("a", "1")}})},
	} {
		r := newReplica(t)
		for _, req := range reqs {
			r.must(req)
		}
		h := hashOf(t, r.Store).Hash
		if other, ok := seen[h]; ok {
			t.Errorf("HashKV is %#x for both %s and %s", h, name, other)
		}
		seen[h] = name
	}
}

func TestHashErrors(t *testing.T) {
	r := history(t)
	r.must(compact(4))
	for _, c := range []struct {
		rev  int64
		want string
	}{
		{3, "etcdserver: mvcc: required revision has been compacted"},
		{4, ""},
		{6, ""},
		{0, ""},
		{7, "etcdserver: mvcc: required revision is a future revision"},
	} {
		h, err := r.HashKV(c.rev)
		if desc := errText(err); desc != c.want || err == nil && (h.Revision != 6 || h.CompactRevision != 4) {
			t.Errorf("HashKV(%d) = %+v, %q, want %q", c.rev, h, desc, c.want)
		}
	}
}
