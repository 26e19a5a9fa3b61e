package e2e

import (
	"context"
	"flag"
	"net"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

var allKilledFlag = flag.Int("all-killed", 1, "how many times all members are killed and started again, to measure when a write is acknowledged")

// All members are killed at once, as by a power cut, and started again. The log says how long
// after the start the first write was acknowledged, by whichever member.
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

// firstWrite returns when one of the members has acknowledged a write.
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
