package store

import (
	"bytes"
	"sync"
	"testing"
	"unsafe"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Records have the bytes of a protobuf message, so all versions read them and compute the same
// hashes.
func TestARecordHasTheBytesOfItsMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
		data := rapid.SliceOfN(rapid.Byte(), 0, 200)
		v := &Version{
			of: newChain(data.Draw(t, "key")), mod: number.Draw(t, "mod"), create: number.Draw(t, "create"),
			number: number.Draw(t, "version"), lease: number.Draw(t, "TTL lease"),
		}
		v.setValue(data.Draw(t, "value"))
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(v.Message())
		if err != nil {
			t.Fatal(err)
		}
		if got := appendMessage(nil, v); !bytes.Equal(got, want) {
			t.Fatalf("appendMessage(%v) = %x, want %x", v, got, want)
		}
	})
}

// A version fills one cache line.
func TestAVersionIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Version{}); size > 64 {
		t.Errorf("a version takes %d bytes, want 64", size)
	}
}

func TestNilAnswersLikeAnAbsentMessage(t *testing.T) {
	var v *Version
	if v.GetKey() != nil || v.GetValue() != nil || v.GetModRevision()|v.GetCreateRevision()|v.GetVersion()|v.GetTTLLease() != 0 || v.Message() != nil {
		t.Errorf("nil answers %v", v)
	}
}

// A chain and a key of 32 bytes share a cache line.
func TestAChainIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(chain{}); size > 32 {
		t.Errorf("a chain takes %d bytes, want 32 and room for a key of 32", size)
	}
}

func newTestTxn(st *state) *transaction { return &transaction{st: st, base: st.revision.Load()} }

func mustPut(t *testing.T, w *transaction, key, value string) {
	t.Helper()
	if _, err := w.put(&pb.PutRequest{Key: []byte(key), Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// Readers do not see a transaction that is rolled back, and still see the version before it.
func TestReadersDoNotSeeWhatIsTakenBack(t *testing.T) {
	st := newState()
	key := []byte("k")
	w := newTestTxn(st)
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
		w := newTestTxn(st)
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

// truncate also works within the only page.
func TestHistoryForgetsWithinAPage(t *testing.T) {
	h := newHistory()
	for rev := range int64(10) {
		h.add(&Version{mod: rev + 1})
	}
	h.truncate(8)
	if n := (*h.pages.Load())[0].n.Load(); n != 3 {
		t.Errorf("%d versions are left, want 3", n)
	}
}

// ReadOnly finds a write in any branch and at any depth.
func TestReadOnly(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}
	del := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{}}}
	nested := func(ops ...*pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: ops}}}
	}
	for _, c := range []struct {
		name string
		op   *pb.RequestOp
		want bool
	}{
		{"a range", get, false},
		{"a put", put, true},
		{"a deletion", del, true},
		{"nothing that is known", &pb.RequestOp{}, true},
		{"a nested range", nested(get), false},
		{"a nested put", nested(get, put), true},
		{"a put two levels down", nested(nested(put)), true},
	} {
		for _, txn := range []*pb.TxnRequest{{Success: []*pb.RequestOp{get, c.op}}, {Failure: []*pb.RequestOp{c.op}}} {
			if got := !ReadOnly(txn); got != c.want {
				t.Errorf("%s: ReadOnly() = %v", c.name, !got)
			}
		}
	}
}

// A last page that is not full counts as what it holds.
func TestHistorySize(t *testing.T) {
	h := newHistory()
	for rev := range int64(3) {
		h.add(&Version{mod: rev + 1})
	}
	if got := h.size(1, 3); got != 3 {
		t.Errorf("size(1, 3) = %d, want 3", got)
	}
}
