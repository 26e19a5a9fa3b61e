package store_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is the common part of testing.T and rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// replica is a store with the log that was applied to it.
type replica struct {
	t fataler
	*store.Store
	log [][]byte // entry i has index i+1 and term 1
}

func newReplica(t *testing.T) *replica {
	t.Helper()
	r := &replica{t: t, Store: openStore(t, storetest.NewDisk().Open())}
	t.Cleanup(func() { shut(t, r) })
	return r
}

func openStore(t fataler, b store.Backend) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Backend: b})
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	return s
}

func openBolt(t fataler, path string) *store.Store {
	t.Helper()
	b, err := boltdb.Open(path)
	if err != nil {
		t.Fatalf("Open(%s) = %v", path, err)
	}
	return openStore(t, b)
}

func encode(t fataler, c *store.Command) []byte {
	t.Helper()
	data, err := c.Encode()
	if err != nil {
		t.Fatalf("Encode() = %v", err)
	}
	return data
}

// request appends req to the log and applies it.
func (r *replica) request(req *pb.InternalRaftRequest) (proto.Message, error) {
	r.t.Helper()
	r.log = append(r.log, encode(r.t, &store.Command{Request: req}))
	res := r.Apply(uint64(len(r.log)), 1, r.log[len(r.log)-1])
	return res.Response, res.Err
}

func (r *replica) must(req *pb.InternalRaftRequest) proto.Message {
	r.t.Helper()
	resp, err := r.request(req)
	if err != nil {
		r.t.Fatalf("Apply(%v) = %v", req, err)
	}
	return resp
}

func (r *replica) put(key, value string) { r.t.Helper(); r.must(put(key, value)) }

// replay applies the entries of log that s lacks.
func replay(s *store.Store, log [][]byte) {
	for i, data := range log {
		if index := uint64(i + 1); index > s.Applied() {
			applyEntry(s, index, data)
		}
	}
}

// raising is an entry that raises the cluster version.
var raising = []byte("raise the cluster version")

func applyEntry(s *store.Store, index uint64, data []byte) store.Result {
	if bytes.Equal(data, raising) {
		s.ApplyConf(index, 1, nil, &store.MemberChange{ClusterVersion: store.ClusterVersionNewest})
		return store.Result{}
	}
	return s.Apply(index, 1, data)
}

// raise raises the cluster version to the newest one.
func (r *replica) raise() {
	r.t.Helper()
	r.log = append(r.log, raising)
	applyEntry(r.Store, uint64(len(r.log)), raising)
}

// command appends c to the log and applies it.
func (r *replica) command(c *store.Command) error {
	r.t.Helper()
	r.log = append(r.log, encode(r.t, c))
	return r.Apply(uint64(len(r.log)), 1, r.log[len(r.log)-1]).Err
}

func put(key, value string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}
}

func del(key, end string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}
}

func txn(t *pb.TxnRequest) *pb.InternalRaftRequest { return &pb.InternalRaftRequest{Txn: t} }

func compact(rev int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}}
}

func activate(member uint64, kind pb.AlarmType) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: kind}}
}

func opPut(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func opRange(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
}

func opDelete(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: del(key, end).GetDeleteRange()}}
}

func opTxn(t *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}
}

// saveSnapshot writes a snapshot to a new file and returns its name.
func saveSnapshot(t fataler, s *store.Store, dir string) string {
	t.Helper()
	snap, err := s.OpenSnapshot()
	if err != nil {
		t.Fatalf("OpenSnapshot() = %v", err)
	}
	return writeSnapshot(t, snap, dir)
}

// writeSnapshot writes snap to a new file, closes it, and returns the name of the file.
func writeSnapshot(t fataler, snap store.Snapshot, dir string) string {
	t.Helper()
	f, err := os.CreateTemp(dir, "snapshot-*")
	if err != nil {
		t.Fatalf("CreateTemp() = %v", err)
	}
	n, err := snap.WriteTo(f)
	info, serr := f.Stat()
	if err := errors.Join(err, serr, f.Close()); err != nil || n != snap.Size() || n != info.Size() {
		t.Fatalf("WriteTo() = %d, %v, want %d bytes as Size says", n, err, snap.Size())
	}
	shut(t, snap)
	return f.Name()
}

func checkpoint(t fataler, s *store.Store) store.Checkpoint {
	t.Helper()
	c, err := s.SaveCheckpoint(nil)
	if err != nil {
		t.Fatalf("SaveCheckpoint() = %v", err)
	}
	return c
}

func hashOf(t fataler, s *store.Store) store.Hash {
	t.Helper()
	h, err := s.HashKV(0)
	if err != nil {
		t.Fatalf("HashKV(0) = %v", err)
	}
	return h
}

func sameHash(t fataler, a, b *store.Store) {
	t.Helper()
	if got, want := hashOf(t, b), hashOf(t, a); got != want {
		t.Fatalf("HashKV(0) = %+v, want %+v", got, want)
	}
}

func dbPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "store.db")
}

// eventsOf converts writes to the events of a watch.
func eventsOf(writes []store.Write) (events []*mvccpb.Event) {
	for _, w := range writes {
		e := &mvccpb.Event{Kv: w.KV.Message(), PrevKv: w.Prev.Message()}
		if w.Deleted {
			e.Type = mvccpb.Event_DELETE
		}
		events = append(events, e)
	}
	return events
}

func newBackend() store.Backend { return storetest.NewDisk().Open() }

func errText(err error) string {
	if err == nil {
		return ""
	}
	return rpctypes.ErrorDesc(err)
}

func shut(t fataler, s io.Closer) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
}
