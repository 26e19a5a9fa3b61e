package etcdapi

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Whoever says that it does not lead, or has too much to do, is not asked in addition
// who it is: it has more of both in an election.
func TestWhatNeedsNoOrigin(t *testing.T) {
	for _, want := range []error{
		rpctypes.ErrGRPCNotLeader, status.Error(codes.ResourceExhausted, "kvnode: too many requests"), rpctypes.ErrGRPCTimeout,
	} {
		// There is no connection to ask on.
		if got := whose(t.Context(), pb.Lease_LeaseTimeToLive_FullMethodName, nil, want); !errors.Is(got, want) {
			t.Errorf("whose() = %v, want %v as it is", got, want)
		}
	}
}
