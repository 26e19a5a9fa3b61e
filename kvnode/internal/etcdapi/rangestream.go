package etcdapi

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// chunkBytes is about how large a message of a RangeStream is, unless one key
// alone is larger. It bounds what one message holds up on its connection.
const chunkBytes = 256 << 10

// RangeStream answers a range request in chunks, all as of one revision. The
// store hands out its own key-values, so a slow reader costs no copy of them.
func (s *kvServer) RangeStream(r *pb.RangeRequest, out grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	if err := checkRangeStream(r); err != nil {
		return err
	}
	ctx := out.Context()
	// Only the wait for the cluster is bounded, not the stream.
	_, err := s.inTime(ctx, time.Now(), r, func(ctx context.Context, _ any) (any, error) {
		return nil, s.mayRead(ctx, r.GetSerializable())
	})
	if err != nil {
		return err
	}
	all, err := s.node.Store().Range(ctx, r)
	if err != nil {
		return clientError(err)
	}
	s.times.ranges.Add(1)
	kvs := all.GetKvs()
	for {
		n := chunk(kvs)
		resp := &pb.RangeResponse{Kvs: kvs[:n]}
		kvs = kvs[n:]
		if len(kvs) == 0 {
			// Header, more and count belong to the last chunk, so that merging
			// all chunks gives what Range gives.
			resp.Header, resp.More, resp.Count = all.GetHeader(), all.GetMore(), all.GetCount()
			s.fill(resp.GetHeader())
		}
		if err := ctx.Err(); err != nil {
			return clientError(err)
		}
		if err := s.sendChunk(out, &pb.RangeStreamResponse{RangeResponse: resp}); err != nil {
			return clientError(err)
		}
		if len(kvs) == 0 {
			return nil
		}
	}
}

// sendChunk sends a message of a stream when there is room for it.
func (s *kvServer) sendChunk(out grpc.ServerStreamingServer[pb.RangeStreamResponse], resp *pb.RangeStreamResponse) error {
	size := proto.Size(resp)
	if size <= smallReply {
		return out.Send(resp)
	}
	r, err := s.replies.reserve(out.Context(), int64(size), 1)
	if err != nil {
		return err
	}
	err = out.SendMsg(&weighed{resp, r})
	if err != nil {
		r.release()
	}
	return err
}

// chunk returns how many of kvs, at least one, make a message.
func chunk(kvs []*mvccpb.KeyValue) int {
	size := 0
	for i, kv := range kvs {
		size += proto.Size(kv)
		if size > chunkBytes {
			return max(i, 1)
		}
	}
	return len(kvs)
}
