package etcdapi

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
)

// maintenanceServer is the Maintenance service. See also alarm.go, snapshot.go.
type maintenanceServer struct {
	*API
	pb.UnsafeMaintenanceServer
}

// Status describes this member. Its sizes are those that the quota counts. It waits for
// nothing, for it is what says why others wait.
func (s *maintenanceServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	node := s.node.Status()
	size, inUse := Size(s.node.Store())
	return &pb.StatusResponse{
		Header:           s.header(),
		Version:          Version,
		StorageVersion:   Version,
		DbSize:           size,
		DbSizeInUse:      inUse,
		DbSizeQuota:      s.cfg.QuotaBytes,
		Leader:           node.Leader,
		RaftIndex:        node.Commit,
		RaftTerm:         node.Term,
		RaftAppliedIndex: node.Applied,
		IsLearner:        node.Learner,
		Errors:           s.troubles(&node),
		DowngradeInfo:    &pb.DowngradeInfo{},
	}, nil
}

// troubles lists what an operator should know, alarms in etcd's form.
func (s *maintenanceServer) troubles(node *kvnode.Status) []string {
	var all []string
	if node.Replaying {
		all = append(all, "kvnode: still applies its log since its start: what it says may be older than what it had acknowledged")
	}
	if node.Leader == 0 {
		all = append(all, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
	}
	for _, m := range s.node.Store().Alarms() {
		all = append(all, fmt.Sprintf("memberID:%d alarm:%s", m.GetMemberID(), m.GetAlarm()))
	}
	if node.DiskFull {
		all = append(all, kvnode.ErrDiskFull.Error())
	}
	if node.Err != nil {
		all = append(all, node.Err.Error())
	}
	return all
}

// Hash hashes everything. There is nothing but keys to hash, so that it agrees
// with HashKV and on all members.
func (s *maintenanceServer) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	if err := s.replayed(ctx); err != nil {
		return nil, err
	}
	h, err := s.node.Store().HashKV(0)
	if err != nil {
		return nil, clientError(err)
	}
	resp := &pb.HashResponse{Header: &pb.ResponseHeader{Revision: h.Revision}, Hash: h.Hash}
	s.fill(resp.GetHeader())
	return resp, nil
}

// HashKV hashes all keys as of a revision, 0 meaning the newest that this
// member has applied. It is not linearizable: it compares members.
func (s *maintenanceServer) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	if err := s.replayed(ctx); err != nil {
		return nil, err
	}
	h, err := s.node.Store().HashKV(r.GetRevision())
	if err != nil {
		return nil, clientError(err)
	}
	resp := &pb.HashKVResponse{
		Header: &pb.ResponseHeader{Revision: h.Revision}, Hash: h.Hash,
		CompactRevision: h.CompactRevision, HashRevision: h.HashRevision,
	}
	s.fill(resp.GetHeader())
	return resp, nil
}

// MoveLeader transfers leadership. Only the leader can.
func (s *maintenanceServer) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if s.node.Leader() != s.node.ID() {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	err := s.node.MoveLeader(ctx, r.GetTargetID())
	if errors.Is(err, kvnode.ErrUnknownMember) {
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	}
	if err != nil {
		return nil, clientError(err)
	}
	return &pb.MoveLeaderResponse{Header: s.header()}, nil
}

// Defragment gives unused space back. Clients do so right after a compaction. Where a
// checkpoint finds no room, what the one before does not use is given back first.
func (s *maintenanceServer) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	saved := s.letGo(ctx)
	if saved != nil && !errors.Is(saved, kvnode.ErrDiskFull) {
		return nil, clientError(saved)
	}
	if err := s.node.Store().Defragment(ctx); err != nil {
		return nil, clientError(errors.Join(saved, err))
	}
	if saved != nil {
		if err := s.node.Checkpoint(ctx); err != nil {
			return nil, clientError(fmt.Errorf("checkpoint after a defragmentation: %w", err))
		}
	}
	return &pb.DefragmentResponse{}, nil // as etcd: without a header
}

// Downgrade is not supported.
func (*maintenanceServer) Downgrade(context.Context, *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	return nil, status.Error(codes.Unimplemented, "kvnode: a cluster cannot be downgraded")
}
