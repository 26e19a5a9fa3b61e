package concurrency

import (
	"context"
	"errors"

	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
)

var (
	// errMissingLeader has etcd's text.
	errMissingLeader = errors.New(`"leader" field must be provided`)
	// errObservation has no reason, because the library does not return one.
	errObservation = status.Error(codes.Unavailable, "kvnode: this member can no longer observe the election; call Observe again")
)

// electionServer implements the Election service.
type electionServer struct {
	*Services
	pb.UnsafeElectionServer
}

// Campaign waits until the caller is elected.
func (s *electionServer) Campaign(ctx context.Context, r *pb.CampaignRequest) (*pb.CampaignResponse, error) {
	ctx, done := s.untilStopping(ctx)
	defer done()
	l, err := s.contend(ctx, r.GetName(), r.GetLease(), concurrency.ErrElectionNotLeader)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	defer l.close()
	session := l.session
	e := concurrency.NewElection(session, string(r.GetName()))
	if err := s.campaign(l.ctx, e, session, r); err != nil {
		s.revokeOwnLease(session, r.GetLease())
		return nil, clientError(l.ctx, err)
	}
	return &pb.CampaignResponse{
		Header: e.Header(),
		Leader: &pb.LeaderKey{Name: r.GetName(), Key: []byte(e.Key()), Rev: e.Rev(), Lease: int64(session.Lease())},
	}, nil
}

func (s *electionServer) campaign(ctx context.Context, e *concurrency.Election, session *concurrency.Session, r *pb.CampaignRequest) error {
	if err := e.Campaign(ctx, string(r.GetValue())); err != nil {
		// The library resigns only if ctx has ended the wait.
		if e.Key() != "" {
			_ = resumeElection(session, &pb.LeaderKey{Name: r.GetName(), Key: []byte(e.Key()), Rev: e.Rev()}).Resign(s.client.Ctx())
		}
		return err
	}
	// If the candidate's TTL lease ended while it waited, there is no key before its own,
	// but its own key is gone, too.
	resp, err := s.client.Get(ctx, e.Key())
	if err != nil {
		return err
	}
	if len(resp.Kvs) == 0 || resp.Kvs[0].GetCreateRevision() != e.Rev() {
		return concurrency.ErrElectionNotLeader
	}
	return nil
}

// Proclaim changes the leader's value.
func (s *electionServer) Proclaim(ctx context.Context, r *pb.ProclaimRequest) (*pb.ProclaimResponse, error) {
	if r.GetLeader() == nil {
		return nil, errMissingLeader
	}
	session, err := s.session(ctx, r.GetLeader().GetLease())
	if err != nil {
		return nil, clientError(ctx, err)
	}
	e := resumeElection(session, r.GetLeader())
	if err := e.Proclaim(ctx, string(r.GetValue())); err != nil {
		s.revokeOwnLease(session, r.GetLeader().GetLease())
		return nil, clientError(ctx, err)
	}
	return &pb.ProclaimResponse{Header: e.Header()}, nil
}

// Resign ends the caller's leadership. It succeeds if the leadership has ended already.
func (s *electionServer) Resign(ctx context.Context, r *pb.ResignRequest) (*pb.ResignResponse, error) {
	if r.GetLeader() == nil {
		return nil, errMissingLeader
	}
	session, err := s.session(ctx, unusedLeaseID)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	e := resumeElection(session, r.GetLeader())
	if err := e.Resign(ctx); err != nil {
		return nil, clientError(ctx, err)
	}
	return &pb.ResignResponse{Header: e.Header()}, nil
}

func resumeElection(session *concurrency.Session, k *pb.LeaderKey) *concurrency.Election {
	return concurrency.ResumeElection(session, string(k.GetName()), string(k.GetKey()), k.GetRev())
}

// Leader returns the current leader's key and value.
func (s *electionServer) Leader(ctx context.Context, r *pb.LeaderRequest) (*pb.LeaderResponse, error) {
	session, err := s.session(ctx, unusedLeaseID)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	resp, err := concurrency.NewElection(session, string(r.GetName())).Leader(ctx)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	return &pb.LeaderResponse{Header: resp.Header, Kv: resp.Kvs[0]}, nil
}

// Observe sends each leader and each proclaimed value, beginning with the current one.
func (s *electionServer) Observe(r *pb.LeaderRequest, stream grpc.ServerStreamingServer[pb.LeaderResponse]) error {
	ctx, done := s.untilStopping(stream.Context())
	session, err := s.session(ctx, unusedLeaseID)
	if err != nil {
		done()
		return clientError(ctx, err)
	}
	updates := concurrency.NewElection(session, string(r.GetName())).Observe(ctx)
	defer func() {
		done()
		for range updates { // the library's goroutine closes updates when it ends
		}
	}()
	for resp := range updates {
		if err := stream.Send(&pb.LeaderResponse{Header: resp.Header, Kv: resp.Kvs[0]}); err != nil {
			return err
		}
	}
	return clientError(ctx, errObservation)
}
