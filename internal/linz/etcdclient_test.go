package linz

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Only a request that never left the client has failed; any other error leaves the outcome unknown.
func TestOnlyWhatNeverLeftTheClientHasFailed(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Outcome
	}{
		{nil, OK},
		{rpctypes.ErrTooManyRequests, Failed},
		{status.Error(codes.Unavailable, "connection error: desc = \"transport: Error while dialing: connection refused\""), Failed},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), Unknown},
		{rpctypes.ErrNoLeader, Unknown},
		{rpctypes.ErrTimeout, Unknown},
		{context.DeadlineExceeded, Unknown},
	} {
		if got := outcome(c.err); got != c.want {
			t.Errorf("outcome(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
