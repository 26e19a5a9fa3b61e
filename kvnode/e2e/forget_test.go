package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// One of two members is removed, and the other is killed. It comes back as a cluster of one and
// does not look for the removed member.
func TestARemovalIsNotForgotten(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		c := newCluster(t, testcluster.Config{Program: p, Size: 2})
		ctx := deadline(t)
		if err := c.Serve(ctx); err != nil {
			t.Fatal(err)
		}
		mustServe(t, c.Members()...)
		stays, err := c.Leader(ctx)
		if err != nil {
			t.Fatal(err)
		}
		goes := c.Members()[0]
		if goes == stays {
			goes = c.Members()[1]
		}
		status, err := goes.WaitStatus(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // etcd removes no member within 5 s of adding it
		err = stays.Use(func(cl *clientv3.Client) error {
			return load.Retry(ctx, func(ctx context.Context) error { // of two, it may have lost the other for a moment
				_, err := cl.MemberRemove(ctx, status.Header.GetMemberId())
				if errors.Is(err, rpctypes.ErrMemberNotFound) {
					return nil
				}
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		kill(t, goes)
		kill(t, stays)
		if err := stays.Start(); err != nil {
			t.Fatal(err)
		}
		mustServe(t, stays)
	})
}
