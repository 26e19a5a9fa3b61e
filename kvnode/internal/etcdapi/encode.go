package etcdapi

import (
	"context"
	"runtime"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// weighed is a reply with the room that it takes once it is encoded.
type weighed struct {
	message proto.Message
	room    *room
}

// weigh finds room for a reply if it is not small. What it returns is what is to
// be sent.
func (a *API) weigh(ctx context.Context, reply any) (any, error) {
	size := replySize(reply)
	if size <= smallReply {
		return reply, nil
	}
	if d := a.deliveries.of(ctx); d != nil {
		return reply, d.reserve(ctx, a.replies, int64(size))
	}
	r, err := a.replies.reserve(ctx, int64(size), 1)
	if err != nil {
		return nil, err
	}
	message, _ := reply.(proto.Message)
	return &weighed{message, r}, nil
}

// replySize returns the size of a reply. Of what is read most, and is small, it is
// an estimate that costs nothing.
func replySize(reply any) int {
	if r, ok := reply.(*pb.RangeResponse); ok && kvBytes(r.GetKvs()) <= smallReply {
		return 0
	}
	if m, ok := reply.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// kvBytes is about the size of a reply of kvs, and not less.
func kvBytes(kvs []*mvccpb.KeyValue) int {
	const (
		header  = 64 // with the count
		numbers = 64 // tags, lengths, revisions, version and TTL lease
	)
	n := header
	for _, kv := range kvs {
		n += len(kv.GetKey()) + len(kv.GetValue()) + numbers
	}
	return n
}

// codec is gRPC's own, except that large replies take as much memory as they have
// bytes, where gRPC takes 1 MiB for whatever has more than 32 KiB, and that the room
// of one is given back when gRPC needs its bytes no more.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{fastwire.NewCodec()} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *weighed:
		return m.marshal()
	case *outgoing:
		return m.marshal(), nil
	case *pb.WatchResponse, *pb.SnapshotResponse: // nobody has weighed them
		message, _ := v.(proto.Message)
		if proto.Size(message) <= smallReply {
			break
		}
		data, err := proto.MarshalOptions{UseCachedSize: true}.Marshal(message)
		return mem.BufferSlice{mem.SliceBuffer(data)}, err
	}
	return c.CodecV2.Marshal(v)
}

func (w *weighed) marshal() (mem.BufferSlice, error) {
	data, err := proto.Marshal(w.message)
	if err != nil {
		w.room.release()
		return nil, err
	}
	b := &replyBytes{room: w.room}
	// Streams that end while their reply is on its way are forgotten without a word.
	b.forgotten = runtime.AddCleanup(b, (*room).release, w.room)
	return mem.BufferSlice{mem.NewBuffer(&data, b)}, nil
}

// replyBytes is where the bytes of one reply go back to.
type replyBytes struct {
	mem.NopBufferPool

	room      *room
	forgotten runtime.Cleanup
}

// Put implements mem.BufferPool.
func (b *replyBytes) Put(*[]byte) {
	b.forgotten.Stop()
	b.room.release()
}
