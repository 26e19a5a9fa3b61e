package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

var (
	genKey   = rapid.SampledFrom([]string{"", "a", "a0", "a1", "b", "b/1", "b/2", "c", "zz", "\xff"})
	genEnd   = rapid.SampledFrom([]string{"", "", "\x00", "a2", "b0", "b/2", "c", "\xff\xff"})
	genValue = rapid.SampledFrom([]string{"", "0", "1", "2"})
)

// genRev draws revisions around those of the model.
func genRev(m *model) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-2, m.rev+2), rapid.Int64Range(m.rev-3, m.rev))
}

func genRange(m *model) *rapid.Generator[*pb.RangeRequest] {
	bound := rapid.OneOf(rapid.Just(int64(0)), rapid.Just(int64(0)), rapid.Int64Range(0, m.rev+1))
	return rapid.Custom(func(t *rapid.T) *pb.RangeRequest {
		return &pb.RangeRequest{
			Key: []byte(genKey.Draw(t, "key")), RangeEnd: []byte(genEnd.Draw(t, "end")),
			Limit:      rapid.SampledFrom([]int64{0, 0, 1, 2, 5, -1, 1<<63 - 1}).Draw(t, "limit"),
			Revision:   genRev(m).Draw(t, "revision"),
			SortOrder:  pb.RangeRequest_SortOrder(rapid.Int32Range(0, 2).Draw(t, "order")),
			SortTarget: pb.RangeRequest_SortTarget(rapid.Int32Range(0, 4).Draw(t, "target")),
			KeysOnly:   rapid.Bool().Draw(t, "keys"), CountOnly: rapid.IntRange(0, 4).Draw(t, "count") == 0,
			MinModRevision: bound.Draw(t, "min mod"), MaxModRevision: bound.Draw(t, "max mod"),
			MinCreateRevision: bound.Draw(t, "min create"), MaxCreateRevision: bound.Draw(t, "max create"),
		}
	})
}

var genPut = rapid.Custom(func(t *rapid.T) *pb.PutRequest {
	r := &pb.PutRequest{
		Key: []byte(genKey.Draw(t, "key")), Value: []byte(genValue.Draw(t, "value")),
		PrevKv:      rapid.Bool().Draw(t, "prev"),
		IgnoreValue: rapid.IntRange(0, 4).Draw(t, "ignore value") == 0,
		IgnoreLease: rapid.IntRange(0, 4).Draw(t, "ignore lease") == 0,
	}
	if rapid.IntRange(0, 9).Draw(t, "lease") == 0 {
		r.Lease = 77
	}
	return r
})

var genDelete = rapid.Custom(func(t *rapid.T) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{
		Key: []byte(genKey.Draw(t, "key")), RangeEnd: []byte(genEnd.Draw(t, "end")), PrevKv: rapid.Bool().Draw(t, "prev"),
	}
})

func genCompare(m *model) *rapid.Generator[*pb.Compare] {
	return rapid.Custom(func(t *rapid.T) *pb.Compare {
		c := &pb.Compare{
			Key: []byte(genKey.Draw(t, "key")), RangeEnd: []byte(genEnd.Draw(t, "end")),
			Target: pb.Compare_CompareTarget(rapid.Int32Range(0, 4).Draw(t, "target")),
			Result: pb.Compare_CompareResult(rapid.Int32Range(0, 3).Draw(t, "result")),
		}
		rev := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, m.rev)).Draw(t, "operand")
		switch rapid.OneOf(rapid.Just(c.GetTarget()), rapid.Just(pb.Compare_VALUE)).Draw(t, "union") {
		case pb.Compare_VERSION:
			c.TargetUnion = &pb.Compare_Version{Version: rev}
		case pb.Compare_CREATE:
			c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: rev}
		case pb.Compare_MOD:
			c.TargetUnion = &pb.Compare_ModRevision{ModRevision: rev}
		case pb.Compare_LEASE:
			c.TargetUnion = &pb.Compare_Lease{Lease: rev}
		default:
			c.TargetUnion = &pb.Compare_Value{Value: []byte(genValue.Draw(t, "value"))}
		}
		return c
	})
}

func genTxn(m *model, depth int) *rapid.Generator[*pb.TxnRequest] {
	return rapid.Custom(func(t *rapid.T) *pb.TxnRequest {
		ops := rapid.SliceOfN(genOp(m, depth), 0, 4)
		return &pb.TxnRequest{
			Compare: rapid.SliceOfN(genCompare(m), 0, 2).Draw(t, "compare"),
			Success: ops.Draw(t, "success"), Failure: ops.Draw(t, "failure"),
		}
	})
}

func genOp(m *model, depth int) *rapid.Generator[*pb.RequestOp] {
	return rapid.Custom(func(t *rapid.T) *pb.RequestOp {
		switch kind := rapid.IntRange(0, 6).Draw(t, "op"); {
		case kind <= 1:
			return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: genRange(m).Draw(t, "range")}}
		case kind <= 3:
			return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: genPut.Draw(t, "put")}}
		case kind <= 4 || depth == 0:
			return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: genDelete.Draw(t, "delete")}}
		default:
			return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: genTxn(m, depth-1).Draw(t, "txn")}}
		}
	})
}

func genRequest(m *model) *rapid.Generator[*pb.InternalRaftRequest] {
	return rapid.Custom(func(t *rapid.T) *pb.InternalRaftRequest {
		switch kind := rapid.IntRange(0, 11).Draw(t, "kind"); {
		case kind <= 4:
			return &pb.InternalRaftRequest{Put: genPut.Draw(t, "put")}
		case kind <= 6:
			return &pb.InternalRaftRequest{DeleteRange: genDelete.Draw(t, "delete")}
		case kind <= 9:
			return &pb.InternalRaftRequest{Txn: genTxn(m, 2).Draw(t, "txn")}
		case kind <= 10:
			return compact(genRev(m).Draw(t, "compact"))
		default:
			return &pb.InternalRaftRequest{Range: genRange(m).Draw(t, "range")}
		}
	})
}

// cluster is a store that goes through faults, another one that applies the same log without any,
// and the model.
type cluster struct {
	t        *rapid.T
	m        *model
	s, other *store.Store
	log      [][]byte
	reopen   func() *store.Store // after a crash
	disk     *storetest.Disk     // of s, if it is in memory
	dir      string
	kept     string // an earlier snapshot
}

func (c *cluster) apply() {
	r := genRequest(c.m).Draw(c.t, "request")
	data := encode(c.t, &store.Command{ID: 9, Request: r})
	c.log = append(c.log, data)
	want, wantErr := c.m.apply(r)
	for _, s := range []*store.Store{c.s, c.other} {
		got := s.Apply(uint64(len(c.log)), 1, data)
		if got.ID != 9 || !errors.Is(got.Err, wantErr) || got.Err == nil && !proto.Equal(got.Response, want) {
			c.t.Fatalf("Apply(%v) = %v, %v, want %v, %v", r, got.Response, got.Err, want, wantErr)
		}
	}
}

func (c *cluster) read() {
	r := genRange(c.m).Draw(c.t, "range")
	want, wantErr := c.m.rangeAt(c.m.rev, r)
	got, err := c.s.Range(c.t.Context(), r)
	if !errors.Is(err, wantErr) || err == nil && !proto.Equal(got, want) {
		c.t.Fatalf("Range(%v) = %v, %v, want %v, %v", r, got, err, want, wantErr)
	}
	key := []byte(genKey.Draw(c.t, "key"))
	kv, rev := c.s.Get(key)
	if want := c.m.one(c.m.rev, key); rev != c.m.rev || !proto.Equal(kv.Message(), want) {
		c.t.Fatalf("Get(%q) = %v, %d, want %v, %d", key, kv, rev, want, c.m.rev)
	}
}

// failedCheckpoint makes a checkpoint that fails at some step, or succeeds.
func (c *cluster) failedCheckpoint() {
	failed := false
	c.disk.Fail(failAt(rapid.IntRange(1, 30).Draw(c.t, "step"), &failed))
	_, _ = c.s.SaveCheckpoint(nil)
	c.disk.Fail(nil)
}

func (c *cluster) crash() {
	shut(c.t, c.s)
	c.s = c.reopen()
	if got, want := c.s.Applied(), c.s.Durable().Index; got != want {
		c.t.Fatalf("Applied() = %d after a restart, want %d as the checkpoint says", got, want)
	}
	replay(c.s, c.log)
}

func (c *cluster) snapshot() {
	if c.s.Durable().Index == 0 {
		return
	}
	if c.kept != "" {
		if err := os.Remove(c.kept); err != nil {
			c.t.Fatalf("Remove() = %v", err)
		}
	}
	c.kept = saveSnapshot(c.t, c.s, c.dir)
}

func (c *cluster) restore() {
	if c.kept == "" {
		return
	}
	if err := c.s.Restore(c.kept); err != nil {
		c.t.Fatalf("Restore() = %v", err)
	}
	c.kept = ""
	replay(c.s, c.log)
}

func (c *cluster) check() {
	if c.s.Revision() != c.m.rev || c.s.CompactRevision() != c.m.compacted || c.s.Applied() != uint64(len(c.log)) {
		c.t.Fatalf("revision %d, compacted %d, applied %d, want %d, %d, %d",
			c.s.Revision(), c.s.CompactRevision(), c.s.Applied(), c.m.rev, c.m.compacted, len(c.log))
	}
	rev := rapid.Int64Range(0, c.m.rev+1).Draw(c.t, "hash revision")
	got, err := c.s.HashKV(rev)
	want, wantErr := c.other.HashKV(rev)
	if got != want || !errors.Is(err, wantErr) {
		c.t.Fatalf("HashKV(%d) = %+v, %v, want %+v, %v", rev, got, err, want, wantErr)
	}
}

// All responses equal the model's, through checkpoints, crashes, snapshots and restores. Hashes
// equal those of a store that went through none of these.
func TestStoreDoesWhatTheModelDoes(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			disk := storetest.NewDisk()
			runCluster(rt, t.TempDir(), disk, func() *store.Store { return openWithSmallCommits(rt, disk.Open()) })
		})
	})
	t.Run("bolt", func(t *testing.T) {
		root, n := t.TempDir(), 0
		rapid.Check(t, func(rt *rapid.T) {
			// Each case costs syncs, so only some run.
			if rapid.IntRange(0, 4).Draw(rt, "skip") > 0 {
				return
			}
			dir := filepath.Join(root, strconv.Itoa(n))
			n++
			if err := os.Mkdir(dir, 0o700); err != nil {
				rt.Fatalf("Mkdir: %v", err)
			}
			runCluster(rt, dir, storetest.NewDisk(), func() *store.Store { return openBolt(rt, filepath.Join(dir, "store.db")) })
		})
	})
}

func runCluster(t *rapid.T, dir string, disk *storetest.Disk, reopen func() *store.Store) {
	c := &cluster{t: t, m: newModel(), s: reopen(), other: openStore(t, storetest.NewDisk().Open()), reopen: reopen, dir: dir, disk: disk}
	defer func() {
		shut(c.t, c.s)
		shut(c.t, c.other)
	}()
	t.Repeat(map[string]func(*rapid.T){
		"apply":            func(*rapid.T) { c.apply() },
		"apply more":       func(*rapid.T) { c.apply(); c.apply(); c.apply() },
		"read":             func(*rapid.T) { c.read() },
		"checkpoint":       func(*rapid.T) { checkpoint(c.t, c.s) },
		"checkpoint fails": func(*rapid.T) { c.failedCheckpoint() },
		"crash":            func(*rapid.T) { c.crash() },
		"snapshot":         func(*rapid.T) { c.snapshot() },
		"restore":          func(*rapid.T) { c.restore() },
		"":                 func(*rapid.T) { c.check() },
	})
}
