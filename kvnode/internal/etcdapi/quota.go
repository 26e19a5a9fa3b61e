package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// keyOverhead is what a key costs besides its own bytes, as etcd estimates it.
const keyOverhead = 256

// checkQuota refuses a request that may take cost more bytes than the quota
// leaves, and raises the alarm that makes all members refuse such requests. As
// in etcd this comes before any other check.
func (a *API) checkQuota(ctx context.Context, cost int64) error {
	if cost == 0 || a.cfg.QuotaBytes < 0 {
		return nil
	}
	size := projectedSize(a.node.Store())
	if size+cost < a.cfg.QuotaBytes {
		return nil
	}
	if !a.alarmRaised(pb.AlarmType_NOSPACE) {
		a.logLimit.Do(func() {
			a.cfg.Logger.Warn("store exceeds its quota", "size", size, "request", cost, "quota", a.cfg.QuotaBytes)
		})
		alarm := &pb.AlarmRequest{MemberID: a.node.ID(), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		// The request is refused whether the alarm could be raised or not.
		_, _ = a.node.Propose(ctx, &pb.InternalRaftRequest{Alarm: alarm})
	}
	return rpctypes.ErrGRPCNoSpace
}

// projectedSize is the size that the durable state is going to have: what no
// checkpoint has yet goes to unused pages first. It takes no more than a few
// microseconds, and a write that is under way counts once it is applied.
func projectedSize(s *store.Store) int64 {
	size, inUse := s.Size()
	return max(size, inUse+s.Unsaved())
}

// Size returns what the quota counts, and how much of it is in use: a
// defragmentation gives the rest back.
func Size(s *store.Store) (total, inUse int64) {
	_, inUse = s.Size()
	return projectedSize(s), inUse + s.Unsaved()
}

// alarmRaised reports whether this member has raised an alarm of that type.
func (a *API) alarmRaised(t pb.AlarmType) bool {
	for _, m := range a.node.Store().Alarms() {
		if m.GetAlarm() == t && m.GetMemberID() == a.node.ID() {
			return true
		}
	}
	return false
}

func putCost(r *pb.PutRequest) int64 {
	return keyOverhead + int64(len(r.GetKey())) + int64(len(r.GetValue()))
}

// txnCost is that of the dearer branch, 0 if neither puts anything.
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
