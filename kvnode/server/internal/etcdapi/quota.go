package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// keyOverhead is the cost of a key in addition to its bytes, as etcd estimates it.
const keyOverhead = 256

// checkQuota rejects a request if its cost exceeds the rest of the quota, and raises the alarm
// that makes all members reject such requests. As in etcd, this check comes first.
func (a *API) checkQuota(ctx context.Context, cost int64) error {
	if cost == 0 || a.cfg.QuotaBytes < 0 {
		return nil
	}
	size := projectedSize(a.node.Store())
	if size+cost < a.cfg.QuotaBytes {
		return nil
	}
	if !a.node.Store().AlarmRaised(pb.AlarmType_NOSPACE, a.node.ID()) {
		a.logLimit.Do(func() {
			a.cfg.Logger.Warn("store exceeds its quota", "size", size, "request", cost, "quota", a.cfg.QuotaBytes)
		})
		alarm := &pb.AlarmRequest{MemberID: a.node.ID(), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		// The request is rejected even if the alarm could not be raised.
		_, _ = a.node.Propose(ctx, &pb.InternalRaftRequest{Alarm: alarm})
	}
	return rpctypes.ErrGRPCNoSpace
}

// projectedSize is the size that the durable state will have after the next checkpoint, which
// uses free pages first. It takes a few microseconds. A write counts once it is applied.
func projectedSize(s *store.Store) int64 {
	size, inUse := s.Size()
	return max(size, inUse+s.UnsavedBytes())
}

// QuotaSize returns the size that counts towards the quota, and how much of it is in use. A
// defragmentation frees the difference.
func QuotaSize(s *store.Store) (total, inUse int64) {
	_, inUse = s.Size()
	return projectedSize(s), inUse + s.UnsavedBytes()
}

func putCost(r *pb.PutRequest) int64 {
	return keyOverhead + int64(len(r.GetKey())) + int64(len(r.GetValue()))
}

// txnCost is the cost of the more expensive branch, 0 if no branch puts a key.
func txnCost(r *pb.TxnRequest) int64 {
	return max(branchCost(r.GetSuccess()), branchCost(r.GetFailure()))
}

func branchCost(ops []*pb.RequestOp) (sum int64) {
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			sum += putCost(p)
		}
		if t := op.GetRequestTxn(); t != nil {
			sum += txnCost(t)
		}
	}
	return sum
}
