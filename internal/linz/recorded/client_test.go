package recorded

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/linz"
)

// A write in doubt must not count as one that never was.
func TestOnlyWhatNeverLeftTheClientHasFailed(t *testing.T) {
	for _, c := range []struct {
		err  error
		want linz.Outcome
	}{
		{nil, linz.OK},
		{rpctypes.ErrTooManyRequests, linz.Failed},
		{status.Error(codes.Unavailable, "connection error: desc = \"transport: Error while dialing: connection refused\""), linz.Failed},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), linz.Unknown},
		{rpctypes.ErrNoLeader, linz.Unknown},
		{rpctypes.ErrTimeout, linz.Unknown},
		{context.DeadlineExceeded, linz.Unknown},
	} {
		if got := outcome(c.err); got != c.want {
			t.Errorf("outcome(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
