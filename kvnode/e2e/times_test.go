package e2e

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

var timesFlag = flag.Int("times", 5, "how often TestTimes measures each time")

// TestTimes measures how long clients wait for a cluster to start, and for the
// next leader. It fails only if no member ever serves; compare with
//
//	go test -run TestTimes -v . -args -servers=kvnode,etcd
func TestTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("measuring takes half a minute")
	}
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		var starts, failovers []time.Duration
		for range *timesFlag {
			start, failover := measure(t, p)
			starts, failovers = append(starts, start), append(failovers, failover)
		}
		report(t, p.Name, "start of 3 processes to the first linearizable read", starts)
		report(t, p.Name, "kill -9 of the leader to the next linearizable read", failovers)
	})
}

func report(t *testing.T, name, what string, d []time.Duration) {
	t.Helper()
	slices.Sort(d)
	t.Logf("%-6s %s: median %v of %v", name, what, d[len(d)/2], d)
}

// measure starts a new cluster, kills its leader, and returns how long clients
// had to wait each time.
func measure(t *testing.T, p testcluster.Program) (start, failover time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := newCluster(t, testcluster.Config{Program: p})
	all := clients(t, c.Members())
	begin := time.Now()
	for _, m := range c.Members() {
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	firstRead(ctx, t, all)
	start = time.Since(begin).Round(time.Millisecond)

	for _, m := range c.Members() {
		if err := m.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// A cluster that has served for a while, with the lease of a steady leader.
	time.Sleep(500 * time.Millisecond)
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(c.Members(), leader)
	begin = time.Now()
	kill(t, leader)
	firstRead(ctx, t, slices.Delete(slices.Clone(all), i, i+1))
	failover = time.Since(begin).Round(time.Millisecond)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	return start, failover
}

func clients(t *testing.T, members []*testcluster.Member) []*clientv3.Client {
	t.Helper()
	var all []*clientv3.Client
	for _, m := range members {
		client, err := m.Client()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		all = append(all, client)
	}
	return all
}

// attempts is the pause between attempts, which is also the measurement error.
const attempts = 5 * time.Millisecond

// firstRead waits until one of the clients has read linearizably. It asks again
// and again, and does not wait for the answer to one before it asks the next.
func firstRead(ctx context.Context, t *testing.T, clients []*clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan struct{}, 1)
	slots := make(chan struct{}, 100) // reads under way
	for {
		for _, client := range clients {
			select {
			case slots <- struct{}{}:
			default:
				continue
			}
			go func() {
				defer func() { <-slots }()
				if _, err := client.Get(ctx, "k"); err == nil {
					select {
					case answered <- struct{}{}:
					default:
					}
				}
			}()
		}
		select {
		case <-answered:
			return
		case <-ctx.Done():
			t.Fatalf("no read succeeded: %v", ctx.Err())
		case <-time.After(attempts):
		}
	}
}
