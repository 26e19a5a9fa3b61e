package etcdapi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/ttl"
)

// leaseServer is the Lease service: etcd's client leases, which are called TTL
// leases here and have nothing to do with the leader lease.
type leaseServer struct {
	*API
	pb.UnsafeLeaseServer
}

// ttlOverhead is what a TTL lease costs, as etcd estimates it.
const ttlOverhead = 64

// LeaseGrant makes a TTL lease. What differs between members is decided here,
// before the request is replicated: the ID, if the client leaves it open, and the
// shortest TTL.
func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if err := s.mayGrow(ctx, ttlOverhead); err != nil {
		return nil, err
	}
	if r.GetTTL() > store.MaxTTL {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	grant := &pb.LeaseGrantRequest{ID: r.GetID(), TTL: max(r.GetTTL(), s.node.MinTTL())}
	for grant.GetID() == 0 {
		id := randomID()
		if _, used := s.node.Store().TTLLease(id); !used {
			grant.ID = id
		}
	}
	return propose[*pb.LeaseGrantResponse](ctx, s.API, &pb.InternalRaftRequest{LeaseGrant: grant})
}

// randomID returns a positive ID, or rarely 0.
func randomID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]) & math.MaxInt64)
}

// LeaseRevoke ends a TTL lease and deletes its keys.
func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return propose[*pb.LeaseRevokeResponse](ctx, s.API, &pb.InternalRaftRequest{LeaseRevoke: r})
}

// LeaseTimeToLive says what is left of a TTL lease, which the leader alone knows.
// One that does not exist has a TTL of -1.
func (s *leaseServer) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	resp, err := leaderWork[*pb.LeaseTimeToLiveResponse]{
		here: func(ctx context.Context) (*pb.LeaseTimeToLiveResponse, error) { return s.timeToLive(ctx, r) },
		there: func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.LeaseTimeToLiveResponse, error) {
			return pb.NewLeaseClient(leader).LeaseTimeToLive(ctx, r)
		},
		repeatable: true,
	}.do(ctx, s.API)
	if err != nil {
		return nil, err
	}
	resp.Header = s.header()
	return resp, nil
}

func (s *leaseServer) timeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	left, err := s.node.TTLLeft(ctx, r.GetID())
	if errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
		return &pb.LeaseTimeToLiveResponse{ID: r.GetID(), TTL: -1}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &pb.LeaseTimeToLiveResponse{ID: r.GetID(), TTL: int64(left.Time / time.Second), GrantedTTL: left.TTL}
	if r.GetKeys() {
		resp.Keys = s.node.Store().TTLKeys(r.GetID())
	}
	return resp, nil
}

// LeaseLeases lists the TTL leases by ID. As in etcd it is this member that is
// asked, so that there is an answer without a leader as well: any list may be old
// once it arrives. Metadata may ask for more.
func (s *leaseServer) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	if err := s.mayRead(ctx, true); err != nil {
		return nil, err
	}
	resp := &pb.LeaseLeasesResponse{Header: s.header()}
	for _, l := range s.node.Store().TTLLeases() {
		resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: l.ID})
	}
	return resp, nil
}

// TTLKeeper knows how much time is left of TTL leases. On a member that does not
// lead, all but MinTTL fails with kvnode.ErrNotLeader.
type TTLKeeper interface {
	// MinTTL returns the shortest TTL in seconds.
	MinTTL() int64
	// RenewTTL returns the TTL in seconds, or rpctypes.ErrGRPCLeaseNotFound.
	RenewTTL(ctx context.Context, id int64) (int64, error)
	TTLLeft(ctx context.Context, id int64) (ttl.Left, error)
}
