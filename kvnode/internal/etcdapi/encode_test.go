package etcdapi

import (
	"log/slog"
	"math"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// What is counted of a reply is the memory that its bytes have: gRPC's buffers of
// more than 32 KiB have 1 MiB.
func TestRepliesTakeWhatIsCounted(t *testing.T) {
	kv := func(n int) *mvccpb.KeyValue { return &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, n)} }
	b := newReplies(1<<30, time.Second, slog.New(slog.DiscardHandler))
	for name, message := range map[string]proto.Message{
		"the largest that is not counted":  &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv(smallReply - 100)}},
		"the smallest that is counted":     &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv(smallReply)}},
		"one that is larger than a buffer": &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv(3 << 20)}},
		"a watch's":                        &pb.WatchResponse{Events: []*mvccpb.Event{{Kv: kv(smallReply)}}},
		"a snapshot's":                     &pb.SnapshotResponse{Blob: make([]byte, 2*smallReply)},
	} {
		t.Run(name, func(t *testing.T) {
			size := proto.Size(message)
			var reply any = message
			if _, ok := message.(*pb.RangeResponse); ok && size > smallReply {
				r, err := b.reserve(t.Context(), int64(size), 1)
				if err != nil {
					t.Fatal(err)
				}
				reply = &weighed{message, r}
			}
			data, err := newCodec().Marshal(reply)
			if err != nil {
				t.Fatal(err)
			}
			if got, most := buffered(data), size+size/4; got > most { // the allocator's classes
				t.Errorf("%d bytes take %d of memory, want %d at most", size, got, most)
			}
			data.Free()
		})
	}
	if used := b.usedBytes(); used != 0 {
		t.Errorf("%d bytes are counted when all is sent, want none", used)
	}
}

// What is estimated is not less than what it stands for, in which gRPC's buffers would
// have to have room.
func TestEstimatesAreNotLess(t *testing.T) {
	const most, largest = math.MaxUint64, math.MaxInt64
	reply := &pb.RangeResponse{
		Header: &pb.ResponseHeader{ClusterId: most, MemberId: most, Revision: largest, RaftTerm: most}, More: true, Count: largest,
		Kvs: []*mvccpb.KeyValue{{
			Key: []byte("k"), Value: make([]byte, smallReply-200), CreateRevision: largest, ModRevision: largest, Version: largest, Lease: largest,
		}},
	}
	if size, estimate := proto.Size(reply), kvBytes(reply.GetKvs()); estimate < size {
		t.Errorf("kvBytes() = %d of a reply of %d bytes, want no less", estimate, size)
	}
}

func buffered(data mem.BufferSlice) (n int) {
	for _, b := range data {
		n += cap(b.ReadOnlyData())
	}
	return n
}
