package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
)

var allKilledFlag = flag.Int("all-killed", 1, "how many times all members are killed and started again, to measure when a write is acknowledged")

// All members are killed at once, as by a power cut, and started again. The log says how long
// after the start any member acknowledged the first write.
func TestWritesAfterAllWereKilled(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		c := newCluster(t, testcluster.Config{Program: p, Flags: []string{electsSoon}})
		must(t, c.Serve(deadline(t)))
		var took []time.Duration
		for range *allKilledFlag {
			servesAt(t, c.Members()...)
			time.Sleep(time.Second) // the promises that a start finds on the disk are those of the default
			must(t, c.Kill())
			began := time.Now()
			must(t, c.Start())
			firstWrite(t, c)
			took = append(took, time.Since(began).Round(time.Millisecond))
		}
		sorted := slices.Sorted(slices.Values(took))
		t.Logf("from the start of all members to the first write: median %v of %v", sorted[len(sorted)/2], took)
	})
}

// firstWrite returns when a member has acknowledged a write.
func firstWrite(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	written := make(chan error, len(c.Members()))
	for _, m := range c.Members() {
		go func() {
			for ctx.Err() == nil { // a client that dials too early waits for a second until it dials again
				conn, err := net.Dial("tcp", m.Endpoint)
				if err == nil {
					_ = conn.Close()
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			written <- m.Use(func(client *clientv3.Client) (err error) {
				for err = ctx.Err(); err == nil; err = ctx.Err() {
					if _, err := client.Put(ctx, "k", "v"); err == nil {
						return nil
					}
				}
				return err
			})
		}()
	}
	must(t, <-written)
	cancel()
	for range len(c.Members()) - 1 {
		<-written
	}
}

// servesAt waits until each of the members serves a write and a linearizable read.
func servesAt(t *testing.T, members ...*testcluster.Member) {
	t.Helper()
	for _, m := range members {
		ctx := deadline(t)
		err := m.Use(func(client *clientv3.Client) (err error) {
			for {
				if _, err = client.Put(ctx, "k", m.Name); err == nil {
					_, err = client.Get(ctx, "k")
				}
				if err == nil || ctx.Err() != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		if err != nil {
			t.Fatalf("%s does not serve: %v", m.Name, err)
		}
	}
}

// All members are killed, and serializable reads begin before they are back. None may be older
// than an acknowledged write.
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

// firstStaleRead returns the value of the first read that m serves.
func firstStaleRead(ctx context.Context, t *testing.T, m *testcluster.Member) (value string) {
	t.Helper()
	must(t, staleReads(ctx, m, "acknowledged", 1, func(got *clientv3.GetResponse) error {
		value = valueOf(got)
		return nil
	}))
	return value
}

// staleReads reads a key from m with serializable reads, from before m serves until it has
// served n reads, and checks each of them.
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
