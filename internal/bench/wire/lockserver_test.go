package wire

import (
	"context"
	"io"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// generous is a server that gives every lock to everybody who asks.
type generous struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	rev       atomic.Int64
	step      int64        // by which revisions grow
	deadlines atomic.Int64 // requests for a lock that had one
}

func (s *generous) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{Revision: 1 + s.rev.Add(s.step)}
}

func (s *generous) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{ID: 1, TTL: 10}, nil
}

func (s *generous) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{}, nil
}

func (s *generous) LeaseKeepAlive(stream grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	for {
		r, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // streams return it bare
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{ID: r.GetID(), TTL: 10}); err != nil {
			return err
		}
	}
}

// Txn says that the key was written, and that nobody was there before.
func (s *generous) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	if _, ok := ctx.Deadline(); ok {
		s.deadlines.Add(1)
	}
	nobody := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}}}
	put := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
	return &pb.TxnResponse{Header: s.header(), Succeeded: true, Responses: []*pb.ResponseOp{put, nobody}}, nil
}

func (s *generous) DeleteRange(context.Context, *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return &pb.DeleteRangeResponse{Header: s.header()}, nil
}

// measureGenerous measures until a lock was taken, and overlapped if that is asked for.
func measureGenerous(t *testing.T, s *generous, clients int, overlaps bool) *LockResult {
	t.Helper()
	endpoint := startFake(t, func(g *grpc.Server) {
		pb.RegisterKVServer(g, s)
		pb.RegisterLeaseServer(g, s)
	})
	l, err := NewLockers(t.Context(), []string{endpoint}, clients, true)
	if err != nil {
		t.Fatal(err)
	}
	enough := func(r *LockResult) bool { return r.Acquire.Done > 0 && (!overlaps || r.Overlaps > 0) }
	r := measured(t, enough, func(times Times) (*LockResult, error) { return l.Measure(t.Context(), times) })
	if r.Acquire.Failed > 0 || r.Acquire.Done == 0 {
		t.Fatalf("Measure() = %d done, failures %v", r.Acquire.Done, r.Acquire.Errors)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return r
}

func TestLocksThatEverybodyGetsAreFoundOut(t *testing.T) {
	if r := measureGenerous(t, &generous{step: 1}, 8, true); r.Overlaps == 0 {
		t.Errorf("8 clients got one lock %d times whenever they asked, and none overlapped", r.Acquire.Done)
	}
	// Alone one holds the lock rightly, but for its token.
	if r := measureGenerous(t, &generous{step: 1}, 1, false); r.Overlaps > 0 {
		t.Errorf("%d of %d locks of a client alone overlapped", r.Overlaps, r.Acquire.Done)
	}
	if r := measureGenerous(t, &generous{step: 0}, 1, false); r.Overlaps < r.Acquire.Done-1 {
		t.Errorf("%d of %d tokens that do not grow were found out, want all", r.Overlaps, r.Acquire.Done)
	}
}

// A deadline at the end of the measurement would fail calls a moment before the
// client's own context says that it is over, and these would count as failures.
func TestNoLockIsAskedForWithADeadline(t *testing.T) {
	s := &generous{step: 1}
	if r := measureGenerous(t, s, 2, false); s.deadlines.Load() > 0 {
		t.Errorf("%d requests of %d had a deadline", s.deadlines.Load(), r.Acquire.Done)
	}
}
