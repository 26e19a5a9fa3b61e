package watch

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is the common part of testing.T, testing.B and rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// limited sets the limits of s that are not 0 in l.
func limited(s *Stream, l limits) *Stream {
	d := &s.limits
	*d = limits{
		cmp.Or(l.queueEvents, d.queueEvents), cmp.Or(l.queueBytes, d.queueBytes),
		cmp.Or(l.batchEvents, d.batchEvents), cmp.Or(l.batchBytes, d.batchBytes), cmp.Or(l.scanWrites, d.scanWrites),
	}
	return s
}

// rig is a store with its hub. The hub's goroutine runs only after Start; otherwise tests call
// pass.
type rig struct {
	t     fataler
	store *store.Store
	hub   *Hub
	spare []revision
}

func newRig(t fataler) *rig {
	t.Helper()
	r := &rig{t: t, hub: New()}
	var err error
	r.store, err = store.Open(store.Config{Backend: storetest.NewDisk().Open(), Events: r.hub.Publish, Restored: r.hub.Missed})
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	r.hub.history, r.hub.mu.next = r.store, r.store.Revision()+1
	return r
}

// testRig returns a rig that is closed after the test.
func testRig(t testing.TB) *rig {
	t.Helper()
	r := newRig(t)
	t.Cleanup(func() { _ = r.store.Close() })
	return r
}

// pass makes the hub handle its inbox.
func (r *rig) pass() { r.spare = r.hub.drain(r.spare) }

func encode(t fataler, req *pb.InternalRaftRequest) []byte {
	t.Helper()
	data, err := (&store.Command{Request: req}).Encode()
	if err != nil {
		t.Fatalf("Encode() = %v", err)
	}
	return data
}

// apply returns the new revision.
func (r *rig) apply(req *pb.InternalRaftRequest) int64 {
	r.t.Helper()
	if res := r.store.Apply(r.store.Applied()+1, 1, encode(r.t, req)); res.Err != nil {
		r.t.Fatalf("Apply(%v) = %v", req, res.Err)
	}
	return r.store.Revision()
}

func (r *rig) put(key, value string) int64 { r.t.Helper(); return r.apply(put(key, value)) }

// puts writes one key n times.
func (r *rig) puts(key string, n int) {
	r.t.Helper()
	for i := range n {
		r.put(key, fmt.Sprint(i))
	}
}

func put(key, value string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}
}

func del(key, end string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}
}

func compact(rev int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}}
}

// putAll returns a transaction that puts keys.
func putAll(value string, keys ...string) *pb.InternalRaftRequest {
	t := &pb.TxnRequest{}
	for _, key := range keys {
		t.Success = append(t.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put(key, value).GetPut()}})
	}
	return &pb.InternalRaftRequest{Txn: t}
}

func (r *rig) watch(s *Stream, req Request) int64 {
	r.t.Helper()
	id, _, err := s.Watch(req)
	if err != nil {
		r.t.Fatalf("Watch(%+v) = %v", req, err)
	}
	return id
}

func key(k string) Request { return Request{Key: []byte(k)} }

func prefix(k string) Request { return Request{Key: []byte(k), End: prefixEnd([]byte(k))} }

func from(r Request, start int64) Request {
	r.Start = start
	return r
}

// drain returns all responses that s has now.
func drain(s *Stream) (all []Response) {
	for range 1 << 20 {
		r, ok := s.Next()
		if ok {
			all = append(all, r)
			continue
		}
		select {
		case <-s.Ready():
		default:
			return all
		}
	}
	panic("the stream is ready for ever, and has nothing to say")
}

// text formats responses as id@revision: events.
func text(all ...Response) (lines []string) {
	for _, r := range all {
		var line strings.Builder
		fmt.Fprintf(&line, "%d@%d:", r.ID, r.Revision)
		if r.Compacted != 0 {
			fmt.Fprintf(&line, " compacted %d", r.Compacted)
		}
		for _, e := range r.Events {
			line.WriteString(" " + eventText(e))
		}
		lines = append(lines, line.String())
	}
	return lines
}

func eventText(e *mvccpb.Event) string {
	s := fmt.Sprintf("%s=%s/%d", e.GetKv().GetKey(), e.GetKv().GetValue(), e.GetKv().GetModRevision())
	if e.GetType() == mvccpb.Event_DELETE {
		s = fmt.Sprintf("-%s/%d", e.GetKv().GetKey(), e.GetKv().GetModRevision())
	}
	if e.GetPrevKv() != nil {
		s += fmt.Sprintf("(%s/%d)", e.GetPrevKv().GetValue(), e.GetPrevKv().GetModRevision())
	}
	return s
}

func wantText(t *testing.T, what string, got []Response, want ...string) {
	t.Helper()
	if lines := text(got...); !slices.Equal(lines, want) {
		t.Errorf("%s: responses = %q, want %q", what, lines, want)
	}
}

// snapshot makes a checkpoint of s and writes it to a file.
func snapshot(t fataler, s *store.Store, dir string) string {
	t.Helper()
	if _, err := s.SaveCheckpoint(nil); err != nil {
		t.Fatalf("SaveCheckpoint() = %v", err)
	}
	snap, err := s.OpenSnapshot()
	if err != nil {
		t.Fatalf("OpenSnapshot() = %v", err)
	}
	defer func() { _ = snap.Close() }()
	f, err := os.CreateTemp(dir, "snapshot-*")
	if err != nil {
		t.Fatalf("CreateTemp() = %v", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := snap.WriteTo(f); err != nil {
		t.Fatalf("WriteTo() = %v", err)
	}
	return f.Name()
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
