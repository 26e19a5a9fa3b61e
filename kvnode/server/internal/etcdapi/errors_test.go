package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/leaderlease"
)

// Clients recognise what the node says, wrapped or not.
func TestNodeErrorsBecomeEtcdErrors(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{kvnode.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
		{kvnode.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged},
		{kvnode.ErrTimeout, rpctypes.ErrGRPCTimeout},
		{kvnode.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests},
		{kvnode.ErrStopped, rpctypes.ErrGRPCStopped},
		{kvnode.ErrNotLeader, rpctypes.ErrGRPCNotLeader},
		{kvnode.ErrNotVoter, rpctypes.ErrGRPCBadLeaderTransferee},
		{kvnode.ErrMemberNotFound, rpctypes.ErrGRPCMemberNotFound},
		{kvnode.ErrMemberExists, rpctypes.ErrGRPCPeerURLExist},
		{kvnode.ErrNotLearner, rpctypes.ErrGRPCMemberNotLearner},
		{kvnode.ErrLearnerNotReady, rpctypes.ErrGRPCLearnerNotReady},
		{kvnode.ErrTooManyLearners, rpctypes.ErrGRPCTooManyLearners},
		{kvnode.ErrNotStarted, rpctypes.ErrGRPCMemberNotEnoughStarted},
		{kvnode.ErrUnhealthy, rpctypes.ErrGRPCUnhealthy},
		{kvnode.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge},
		{kvnode.ErrDiskFull, rpctypes.ErrGRPCNoSpace},
		{context.Canceled, rpctypes.ErrGRPCCanceled},
		{context.DeadlineExceeded, rpctypes.ErrGRPCDeadlineExceeded},
		{fmt.Errorf("%w: %w", kvnode.ErrTimeout, context.DeadlineExceeded), rpctypes.ErrGRPCTimeout},
		{errors.Join(context.DeadlineExceeded, kvnode.ErrTimeout), rpctypes.ErrGRPCTimeout},
		{rpctypes.ErrGRPCCompacted, rpctypes.ErrGRPCCompacted},
		{errors.New("odd"), status.Error(codes.Unknown, "odd")},
	} {
		wantStatus(t, fmt.Sprintf("clientError(%v)", c.err), clientError(c.err), c.want)
		if c.err != nil && status.Code(c.want) != codes.Unknown {
			wantStatus(t, fmt.Sprintf("clientError(wrapped %v)", c.err), clientError(fmt.Errorf("read: %w", c.err)), c.want)
		}
	}
}

// Whatever the reason for which a read could not be permitted, clientv3 may try
// it again.
func TestRejectedReadsMayBeRetried(t *testing.T) {
	s := startServer(t, Config{})
	for status := leaderlease.StatusNone; status <= leaderlease.StatusMargin; status++ {
		for _, leader := range []uint64{0, 2} {
			s.onRead = func(context.Context, kvnode.ReadMode) error {
				return fmt.Errorf("read: %w", &leaderlease.NoLeaseError{Term: 3, Leader: leader, Status: status})
			}
			_, err := s.kv.Range(t.Context(), &pb.RangeRequest{Key: []byte("k")})
			want := rpctypes.ErrGRPCLeaderChanged
			switch {
			case status == leaderlease.StatusClosed:
				want = rpctypes.ErrGRPCStopped
			case status == leaderlease.StatusDisabled || status == leaderlease.StatusClockFault || status == leaderlease.StatusDiskStalled:
				want = rpctypes.ErrGRPCUnhealthy
			case leader == 0:
				want = rpctypes.ErrGRPCNoLeader
			}
			wantStatus(t, fmt.Sprintf("Range without a lease (%v, leader %d)", status, leader), err, want)
			if !retried(err) {
				t.Errorf("Range without a lease (%v, leader %d) = %v, want Unavailable", status, leader, err)
			}
		}
	}
}

func retried(err error) bool { return status.Code(err) == codes.Unavailable }

// A node that answers with something else than etcd's response is a bug that
// must not look like success.
func TestResponseOfAnotherKindIsAnInternalError(t *testing.T) {
	s := startServer(t, Config{})
	a := New(s.fakeNode, Config{})
	_, err := propose[*pb.DeleteRangeResponse](t.Context(), a, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k")}})
	if status.Code(err) != codes.Internal {
		t.Errorf("propose = %v, want Internal", err)
	}
}
