package fastwire

import (
	"bytes"
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// A get is encoded as package proto encodes it. A request that asks for more is not decoded.
func TestGetRequest(t *testing.T) {
	for _, key := range []string{"k", "\xff\x00", string(make([]byte, 300))} {
		want, err := proto.Marshal(&pb.RangeRequest{Key: []byte(key)})
		if err != nil {
			t.Fatal(err)
		}
		got := AppendGet([]byte("before"), key)[len("before"):]
		if back, ok := DecodeGet(got); !bytes.Equal(got, want) || !ok || string(back) != key {
			t.Errorf("a get of %q is %x, want %x; of the key %q, %v", key, got, want, back, ok)
		}
	}
	for _, c := range []struct {
		r   *pb.RangeRequest
		get bool
	}{
		{&pb.RangeRequest{Key: []byte("k"), Serializable: true, Limit: 7}, true},
		{&pb.RangeRequest{}, false},
		{&pb.RangeRequest{Limit: 1}, false},
		{&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}, false},
		{&pb.RangeRequest{Key: []byte("k"), Revision: 1}, false},
		{&pb.RangeRequest{Key: []byte("k"), KeysOnly: true}, false},
		{&pb.RangeRequest{Key: []byte("k"), CountOnly: true}, false},
		{&pb.RangeRequest{Key: []byte("k"), MinModRevision: 1}, false},
		{&pb.RangeRequest{Key: []byte("k"), MaxModRevision: 1}, false},
		{&pb.RangeRequest{Key: []byte("k"), MinCreateRevision: 1}, false},
		{&pb.RangeRequest{Key: []byte("k"), MaxCreateRevision: 1}, false},
		{&pb.RangeRequest{Key: []byte("k"), SortOrder: 9}, false},
		{&pb.RangeRequest{Key: []byte("k"), SortTarget: 9}, false},
	} {
		data, err := proto.Marshal(c.r)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := DecodeGet(data); ok != c.get {
			t.Errorf("%v is a get of one key: %v, want %v", c.r, ok, c.get)
		}
	}
}

// responses returns responses to gets, from the smallest to the largest.
func responses() (heads []ResponseHead, kvs []*mvccpb.KeyValue) {
	for _, n := range []uint64{0, 1, 127, 128, 1 << 40, math.MaxUint64} {
		heads = append(heads, ResponseHead{n, n + 1, n / 3, n / 5, n / 7})
		kvs = append(kvs, &mvccpb.KeyValue{
			Key: make([]byte, min(n, 500)), Value: bytes.Repeat([]byte("v"), int(min(n/2, 40_000))),
			CreateRevision: int64(n), ModRevision: int64(n / 2), Version: int64(n / 3), Lease: int64(n / 4),
		})
	}
	return heads, append(kvs, nil)
}

// AppendGetResponse and DecodeGetResponse agree with package proto.
func TestGetResponse(t *testing.T) {
	var field LeaderField
	heads, kvs := responses()
	for _, h := range heads {
		for _, kv := range kvs {
			want := &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: h.Cluster, MemberId: h.Member, Revision: int64(h.Revision), RaftTerm: h.Term}}
			field.Put(want.GetHeader(), h.Leader)
			if kv != nil {
				want.Kvs, want.Count = []*mvccpb.KeyValue{kv}, 1
			}
			data := AppendGetResponse([]byte("before"), &h, kv)[len("before"):]
			got := new(pb.RangeResponse)
			if err := proto.Unmarshal(data, got); err != nil || !proto.Equal(got, want) {
				t.Errorf("%+v is for package proto %v, %v; want %v", h, got, err, want)
			}
			ours := DecodeGetResponse(data, &field)
			clear(data)
			if !proto.Equal(ours, want) || LeaderOf(ours.GetHeader()) != h.Leader {
				t.Errorf("%+v is got as %v, want %v", h, ours, want)
			}
		}
	}
}

// FuzzGot: DecodeGetResponse decodes any bytes as package proto does, or not at all.
func FuzzGot(f *testing.F) {
	heads, kvs := responses()
	for i, h := range heads {
		f.Add(AppendGetResponse(nil, &h, kvs[i%4]))
	}
	for _, r := range []*pb.RangeResponse{{}, {More: true}, {Kvs: []*mvccpb.KeyValue{{}, {}}, Count: 2}, {Header: &pb.ResponseHeader{}}} {
		data, _ := proto.Marshal(r)
		f.Add(data)
	}
	var field LeaderField
	f.Fuzz(func(t *testing.T, data []byte) {
		got := DecodeGetResponse(data, &field)
		if got == nil {
			return
		}
		want := new(pb.RangeResponse)
		if err := proto.Unmarshal(data, want); err != nil || !proto.Equal(got, want) {
			t.Errorf("%x is got as %v, want %v, %v", data, got, want, err)
		}
	})
}

// FuzzGet: if DecodeGet returns a key, package proto decodes a get of that key.
func FuzzGet(f *testing.F) {
	f.Add(AppendGet(nil, "k"))
	f.Add([]byte{0x0a, 1, 'k', 0x18, 1, 0x38, 1, 0x0a, 1, 'l'})
	f.Fuzz(func(t *testing.T, data []byte) {
		key, ok := DecodeGet(data)
		if !ok {
			return
		}
		got := new(pb.RangeRequest)
		if err := proto.Unmarshal(data, got); err != nil || !bytes.Equal(got.GetKey(), key) {
			t.Errorf("%x is a get of %q, want %v, %v", data, key, got, err)
		}
		got.Key, got.Limit, got.Serializable = nil, 0, false
		if !proto.Equal(got, &pb.RangeRequest{}) {
			t.Errorf("%x is taken for a get, and is %v", data, got)
		}
	})
}
