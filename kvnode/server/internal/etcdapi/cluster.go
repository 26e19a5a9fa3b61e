package etcdapi

import (
	"cmp"
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// clusterServer implements the Cluster service.
type clusterServer struct {
	*API
	pb.UnsafeClusterServer
}

// MemberList lists the members by ID.
func (s *clusterServer) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if err := s.waitForRead(ctx, !r.GetLinearizable()); err != nil {
		return nil, err
	}
	return &pb.MemberListResponse{Header: s.header(), Members: s.members()}, nil
}

func (s *clusterServer) members() []*pb.Member {
	registry := s.node.Store().Members()
	all := make([]*pb.Member, 0, len(registry.ByID))
	for _, m := range registry.ByID {
		all = append(all, memberOf(m))
	}
	slices.SortFunc(all, func(a, b *pb.Member) int { return cmp.Compare(a.GetID(), b.GetID()) })
	return all
}

func memberOf(m store.Member) *pb.Member {
	return &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.Learner}
}

// MemberAdd adds a voter or a learner, which starts afterwards.
func (s *clusterServer) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	if err := checkURLs(r.GetPeerURLs()); err != nil {
		return nil, err
	}
	m, err := s.node.AddMember(ctx, r.GetPeerURLs(), r.GetIsLearner())
	if err != nil {
		return nil, clientError(err)
	}
	return &pb.MemberAddResponse{Header: s.header(), Member: memberOf(m), Members: s.members()}, nil
}

// MemberRemove removes a member, which then stops.
func (s *clusterServer) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	if err := s.node.RemoveMember(ctx, r.GetID()); err != nil {
		return nil, clientError(err)
	}
	return &pb.MemberRemoveResponse{Header: s.header(), Members: s.members()}, nil
}

// MemberUpdate changes a member's peer URLs.
func (s *clusterServer) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	if err := checkURLs(r.GetPeerURLs()); err != nil {
		return nil, err
	}
	if err := s.node.UpdateMember(ctx, r.GetID(), r.GetPeerURLs()); err != nil {
		return nil, clientError(err)
	}
	return &pb.MemberUpdateResponse{Header: s.header(), Members: s.members()}, nil
}

// MemberPromote makes a learner a voter. Only the leader knows the learner's progress.
func (s *clusterServer) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return leaderRequest[*pb.MemberPromoteResponse]{
		local: func(ctx context.Context) (*pb.MemberPromoteResponse, error) {
			if err := s.node.PromoteMember(ctx, r.GetID()); err != nil {
				return nil, err
			}
			return &pb.MemberPromoteResponse{Header: s.header(), Members: s.members()}, nil
		},
		remote: func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.MemberPromoteResponse, error) {
			resp, err := pb.NewClusterClient(leader).MemberPromote(ctx, r, grpc.WaitForReady(true))
			if err == nil {
				resp.Header = s.header() // the header of this member
			}
			return resp, err
		},
	}.run(ctx, s.API)
}

// checkURLs rejects invalid URLs with etcd's error, and too many of them with an error that names the limit.
func checkURLs(urls []string) error {
	err := kvnode.CheckPeerURLs(urls)
	switch {
	case err == nil:
		return nil
	case len(urls) > peerurl.MaxURLs:
		return status.Errorf(codes.InvalidArgument, "etcdserver: given member URLs are invalid: %v", err)
	default:
		return rpctypes.ErrGRPCMemberBadURLs
	}
}
