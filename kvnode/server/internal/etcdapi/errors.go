package etcdapi

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/leaderlease"
)

// sentinels maps the node's errors to etcd's. The node's own errors come first, because they may
// wrap a context error.
var sentinels = []struct{ from, to error }{
	{kvnode.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
	{kvnode.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged},
	{kvnode.ErrTimeout, rpctypes.ErrGRPCTimeout},
	{kvnode.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests},
	{kvnode.ErrStopped, rpctypes.ErrGRPCStopped},
	{kvnode.ErrNotLeader, rpctypes.ErrGRPCNotLeader},
	{errNoMember, rpctypes.ErrGRPCNotLeader},
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
}

// clientError returns err as clients know it. An error that is or wraps a gRPC status keeps its
// status. As in etcd, an unknown error gets the code Unknown.
func clientError(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return s
	}
	for _, s := range sentinels {
		if errors.Is(err, s.from) {
			return s.to
		}
	}
	if nl, ok := errors.AsType[*leaderlease.NoLeaseError](err); ok {
		return noLeaseError(nl)
	}
	return status.Error(codes.Unknown, err.Error())
}

// noLeaseError maps the reason why neither the lease nor a quorum round permitted a read. All
// results are Unavailable: the read had no effect, and clients retry it.
func noLeaseError(err *leaderlease.NoLeaseError) error {
	switch err.Status {
	case leaderlease.StatusClosed:
		return rpctypes.ErrGRPCStopped
	case leaderlease.StatusDisabled, leaderlease.StatusClockFault, leaderlease.StatusDiskStalled:
		return rpctypes.ErrGRPCUnhealthy
	default:
	}
	if err.Leader == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	return rpctypes.ErrGRPCLeaderChanged
}
