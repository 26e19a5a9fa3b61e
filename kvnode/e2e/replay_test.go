package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// All members are killed, and stale reads begin before they are back. None shows less
// than what was acknowledged.
func TestNoReadAfterAKillIsOlderThanAnAcknowledgedPut(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprintf("size=%d", size), func(t *testing.T) {
				c := newCluster(t, testcluster.Config{Program: p, Size: size})
				ctx := deadline(t)
				if err := c.Serve(ctx); err != nil {
					t.Fatal(err)
				}
				must(t, c.Members()[0].Use(func(cl *clientv3.Client) error {
					return load.Retry(ctx, func(ctx context.Context) error {
						_, err := cl.Put(ctx, "acknowledged", "yes")
						return err
					})
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
func firstStaleRead(ctx context.Context, t *testing.T, m *testcluster.Member) (value string) {
	t.Helper()
	must(t, staleReads(ctx, m, "acknowledged", 1, func(got *clientv3.GetResponse) error {
		value = valueOf(got)
		return nil
	}))
	return value
}

// staleReads reads a key from m, as stale as it may be, from before it serves until it
// has served n reads, and has each of them checked.
func staleReads(ctx context.Context, m *testcluster.Member, key string, n int, check func(*clientv3.GetResponse) error) error {
	return m.Use(func(c *clientv3.Client) error {
		for n > 0 {
			got, err := c.Get(ctx, key, clientv3.WithSerializable())
			if err == nil {
				n--
				if err := check(got); err != nil {
					return err
				}
				continue
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Millisecond):
			}
		}
		return nil
	})
}

// valueOf returns the value of the only key in an answer.
func valueOf(got *clientv3.GetResponse) string {
	if len(got.Kvs) != 1 {
		return ""
	}
	return string(got.Kvs[0].GetValue())
}
