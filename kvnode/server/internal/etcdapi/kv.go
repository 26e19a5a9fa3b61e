package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// kvServer implements the KV service.
type kvServer struct {
	*API
	pb.UnsafeKVServer // a method that a new version adds is a compile error
}

// Range answers a range request.
func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	if err := s.waitForRead(ctx, r.GetSerializable()); err != nil {
		return nil, err
	}
	if isGet(r) {
		return s.get(r.GetKey()), nil
	}
	resp, err := s.node.Store().Range(clientContext(ctx), r)
	if err != nil {
		return nil, clientError(err)
	}
	s.fillHeader(resp.GetHeader())
	return resp, nil
}

// isGet reports whether r asks for the newest version of one key and nothing else. Limit and
// order do not matter for one key.
func isGet(r *pb.RangeRequest) bool {
	return len(r.GetRangeEnd()) == 0 && r.GetRevision() <= 0 && !r.GetKeysOnly() && !r.GetCountOnly() &&
		r.GetMinModRevision() == 0 && r.GetMaxModRevision() == 0 &&
		r.GetMinCreateRevision() == 0 && r.GetMaxCreateRevision() == 0
}

// getResponse is the response to a get, in one allocation.
type getResponse struct {
	response pb.RangeResponse
	header   pb.ResponseHeader
	kvs      [1]*mvccpb.KeyValue
	kv       mvccpb.KeyValue
}

// get returns the newest version of key.
func (s *kvServer) get(key []byte) *pb.RangeResponse {
	one := new(getResponse)
	one.response.Header = &one.header
	v, revision := s.node.Store().Get(key)
	one.header.Revision = revision
	s.fillHeader(&one.header)
	if v != nil {
		v.Fill(&one.kv)
		one.kvs[0] = &one.kv
		one.response.Kvs = one.kvs[:]
		one.response.Count = 1
	}
	return &one.response
}

// Put puts a key.
func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := s.checkQuota(ctx, putCost(r)); err != nil {
		return nil, err
	}
	if err := checkPut(r); err != nil {
		return nil, err
	}
	return propose[*pb.PutResponse](ctx, s.API, &pb.InternalRaftRequest{Put: r})
}

// DeleteRange deletes keys.
func (s *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	return propose[*pb.DeleteRangeResponse](ctx, s.API, &pb.InternalRaftRequest{DeleteRange: r})
}

// Txn executes a transaction. A transaction that only reads is served like a range.
func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := s.checkQuota(ctx, txnCost(r)); err != nil {
		return nil, err
	}
	if err := checkTxn(r, s.cfg.MaxTxnOps); err != nil {
		return nil, err
	}
	if err := checkOverlaps(r); err != nil {
		return nil, err
	}
	if store.ReadOnly(r) {
		return s.readTxn(ctx, r)
	}
	return propose[*pb.TxnResponse](ctx, s.API, &pb.InternalRaftRequest{Txn: r})
}

// Compact discards history. If r.Physical is set, this member has freed the space when Compact
// returns (dbSizeInUse has fallen), unless its disk is full.
func (s *kvServer) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	resp, err := propose[*pb.CompactionResponse](ctx, s.API, &pb.InternalRaftRequest{Compaction: r})
	if err != nil || !r.GetPhysical() {
		return resp, err
	}
	err = s.freeCompacted(ctx)
	if errors.Is(err, kvnode.ErrDiskFull) {
		// The compaction took effect and cannot be repeated. A defragmentation frees space.
		s.cfg.Logger.Warn("compacted space stays in use: the disk has no space for a checkpoint; defragment the store", "error", err)
		return resp, nil
	}
	if err != nil {
		return nil, clientError(err)
	}
	return resp, nil
}

// freeCompacted frees the space of compacted revisions. The space stays in use until a checkpoint
// no longer contains them.
func (a *API) freeCompacted(ctx context.Context) error {
	if err := a.node.Store().FinishCompaction(ctx); err != nil {
		return err
	}
	if err := a.node.Checkpoint(ctx); err != nil {
		return fmt.Errorf("checkpoint after a compaction: %w", err)
	}
	return nil
}

// readTxn answers a transaction that only reads, at one revision.
func (s *kvServer) readTxn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := s.waitForRead(ctx, allSerializable(r)); err != nil {
		return nil, err
	}
	resp, err := s.node.Store().Txn(clientContext(ctx), r)
	if err != nil {
		return nil, clientError(err)
	}
	s.fillHeader(resp.GetHeader())
	s.countTxn(resp)
	return resp, nil
}

// countTxn counts the ranges of an answered transaction.
func (a *API) countTxn(resp *pb.TxnResponse) {
	ranges := countRanges(resp)
	a.stats.ranges.Add(ranges)
	if ranges > 1 {
		a.stats.txns.Add(1)
	}
}

func countRanges(resp *pb.TxnResponse) (n uint64) {
	for _, r := range resp.GetResponses() {
		if nested := r.GetResponseTxn(); nested != nil {
			n += countRanges(nested)
		} else {
			n++
		}
	}
	return n
}

// allSerializable reports whether every read of r is serializable. It is false for a transaction
// that only compares.
func allSerializable(r *pb.TxnRequest) bool {
	ranges := 0
	all := store.EveryOp(r, func(op *pb.RequestOp) bool {
		ranges++
		return op.GetRequestRange().GetSerializable()
	})
	return all && ranges > 0
}

// chunkBytes is the approximate size of one message of a RangeStream. A single key may exceed it.
// Larger messages delay others on the connection.
const chunkBytes = 256 << 10

// RangeStream answers a range request in chunks, all at one revision. They share the store's keys and
// values, so a slow reader holds no copy of them.
func (s *kvServer) RangeStream(r *pb.RangeRequest, out grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	if err := checkRangeStream(r); err != nil {
		return err
	}
	ctx := out.Context()
	// The timeout is for the wait for the cluster, not for the stream.
	_, err := s.handleWithTimeout(ctx, time.Now(), r, func(ctx context.Context, _ any) (any, error) {
		return nil, s.waitForRead(ctx, r.GetSerializable())
	})
	if err != nil {
		return err
	}
	all, err := s.node.Store().Range(ctx, r)
	if err != nil {
		return clientError(err)
	}
	s.stats.ranges.Add(1)
	kvs := all.GetKvs()
	for {
		n := chunkLen(kvs)
		resp := &pb.RangeResponse{Kvs: kvs[:n]}
		kvs = kvs[n:]
		if len(kvs) == 0 {
			// Header, more and count go into the last chunk, so that all chunks merged
			// are the response of Range.
			resp.Header, resp.More, resp.Count = all.GetHeader(), all.GetMore(), all.GetCount()
			s.fillHeader(resp.GetHeader())
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

// sendChunk sends a message when the reply budget has space for it.
func (s *kvServer) sendChunk(out grpc.ServerStreamingServer[pb.RangeStreamResponse], resp *pb.RangeStreamResponse) error {
	size := proto.Size(resp)
	if size <= smallReply {
		return out.Send(resp)
	}
	r, err := s.replies.reserve(out.Context(), int64(size), 1)
	if err != nil {
		return err
	}
	err = out.SendMsg(&reservedReply{resp, r})
	if err != nil {
		r.release()
	}
	return err
}

// chunkLen returns how many of kvs, at least one, go into one message.
func chunkLen(kvs []*mvccpb.KeyValue) int {
	size := 0
	for i, kv := range kvs {
		size += proto.Size(kv)
		if size > chunkBytes {
			return max(i, 1)
		}
	}
	return len(kvs)
}
