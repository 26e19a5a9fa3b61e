package etcdapi

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode"
)

// kvServer is the KV service.
type kvServer struct {
	*API
	pb.UnsafeKVServer // a method that a new version adds is an error here
}

// Range answers a range request.
func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	if err := s.mayRead(ctx, r.GetSerializable()); err != nil {
		return nil, err
	}
	if isGet(r) {
		return s.get(r.GetKey()), nil
	}
	resp, err := s.node.Store().Range(ownContext(ctx), r)
	if err != nil {
		return nil, clientError(err)
	}
	s.fill(resp.GetHeader())
	return resp, nil
}

// isGet reports whether r asks for the newest version of one key and nothing
// else. Limit and order make no difference to one key.
func isGet(r *pb.RangeRequest) bool {
	return len(r.GetRangeEnd()) == 0 && r.GetRevision() <= 0 && !r.GetKeysOnly() && !r.GetCountOnly() &&
		r.GetMinModRevision() == 0 && r.GetMaxModRevision() == 0 &&
		r.GetMinCreateRevision() == 0 && r.GetMaxCreateRevision() == 0
}

// single is the answer to a get, in one piece of memory.
type single struct {
	response pb.RangeResponse
	header   pb.ResponseHeader
	kvs      [1]*mvccpb.KeyValue
	kv       mvccpb.KeyValue
}

// get answers with the newest version of key.
func (s *kvServer) get(key []byte) *pb.RangeResponse {
	one := new(single)
	one.response.Header = &one.header
	v, revision := s.node.Store().Get(key)
	one.header.Revision = revision
	s.fill(&one.header)
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
	if err := s.mayGrow(ctx, putCost(r)); err != nil {
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

// Txn does several things at once. What only reads leaves no entry in the log.
func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := s.mayGrow(ctx, txnCost(r)); err != nil {
		return nil, err
	}
	if err := checkTxn(r, s.cfg.MaxTxnOps); err != nil {
		return nil, err
	}
	if err := checkOverlaps(r); err != nil {
		return nil, err
	}
	if readOnly(r) {
		return s.readTxn(ctx, r)
	}
	return propose[*pb.TxnResponse](ctx, s.API, &pb.InternalRaftRequest{Txn: r})
}

// Compact forgets history. Where the request says physical, this member has let go
// of it when this returns, unless its disk is full: dbSizeInUse has fallen.
func (s *kvServer) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	resp, err := propose[*pb.CompactionResponse](ctx, s.API, &pb.InternalRaftRequest{Compaction: r})
	if err != nil || !r.GetPhysical() {
		return resp, err
	}
	err = s.letGo(ctx)
	if errors.Is(err, kvnode.ErrDiskFull) {
		// It took effect, and cannot be repeated. A defragmentation makes room.
		s.cfg.Logger.Warn("what was compacted stays in use: there is no room for a checkpoint", "error", err)
		return resp, nil
	}
	if err != nil {
		return nil, clientError(err)
	}
	return resp, nil
}

// letGo frees in the store what compactions have made unreachable. It is in use
// until a checkpoint has let go of it.
func (a *API) letGo(ctx context.Context) error {
	if err := a.node.Store().FinishCompaction(ctx); err != nil {
		return err
	}
	if err := a.node.Checkpoint(ctx); err != nil {
		return fmt.Errorf("checkpoint after a compaction: %w", err)
	}
	return nil
}
