package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/e2e/cluster"
)

// All members are killed, and stale reads begin before they are back. None shows less
// than what was acknowledged.
func TestNoReadAfterAKillIsOlderThanAnAcknowledgedPut(t *testing.T) {
	eachServer(t, func(t *testing.T, p cluster.Program) {
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprintf("size=%d", size), func(t *testing.T) {
				c := newCluster(t, cluster.Config{Program: p, Size: size})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := c.Start(ctx); err != nil {
					t.Fatal(err)
				}
				must(t, c.Members()[0].Use(func(cl *clientv3.Client) error {
					_, err := cl.Put(ctx, "acknowledged", "yes")
					return err
				}))
				must(t, c.Kill())
				for _, m := range c.Members() {
					must(t, m.Start())
				}
				for _, m := range c.Members() {
					if got := firstStaleRead(ctx, t, m); got != "yes" {
						t.Errorf("%s reads %q after the kill, want yes", m.Name, got)
					}
				}
			})
		}
	})
}

// firstStaleRead returns what the first read that m serves shows.
func firstStaleRead(ctx context.Context, t *testing.T, m *cluster.Member) (value string) {
	t.Helper()
	must(t, m.Use(func(c *clientv3.Client) error {
		for {
			got, err := c.Get(ctx, "acknowledged", clientv3.WithSerializable())
			if err == nil {
				if len(got.Kvs) == 1 {
					value = string(got.Kvs[0].GetValue())
				}
				return nil
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Millisecond):
			}
		}
	}))
	return value
}
