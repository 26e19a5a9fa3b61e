package kvnode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// leaderless cuts all members off from each other, and returns the former leader once it knows
// of no leader.
func (c *cluster) leaderless() *Node {
	n := c.leader()
	for _, n := range c.nodes {
		c.isolate(n)
	}
	for n.Leader() != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return n
}

// ledRequests returns requests to n that need a leader.
func ledRequests(n *Node) map[string]func(context.Context) error {
	read := func(mode ReadMode) func(context.Context) error {
		return func(ctx context.Context) error { _, err := n.Read(ctx, mode); return err }
	}
	return map[string]func(context.Context) error{
		"a write":                func(ctx context.Context) error { return put(ctx, n, "k", "v") },
		"a read":                 read(ReadLease),
		"a read by a round":      read(ReadIndex),
		"a read through the log": read(ReadLog),
	}
}

// A request that has no deadline fails after an election timeout without a leader. Others wait.
func TestWithoutALeaderARequestWaitsForAnElectionTimeout(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leaderless()
		timeout := n.cfg.ElectionTimeout
		impatient := context.WithValue(t.Context(), FailWithoutLeader{}, true)
		for name, do := range ledRequests(n) {
			for _, ctx := range []context.Context{impatient, t.Context()} {
				begun, want := time.Now(), timeout
				if ctx != impatient {
					want = n.cfg.RequestTimeout
				}
				err := do(ctx)
				told := errors.Is(err, ErrNoLeader) || ctx != impatient && errors.Is(err, ErrTimeout) // at a tick raft is asked once more
				if took := time.Since(begun); !told || took < want || took > want+timeout/4 {
					t.Errorf("%s without a leader = %v after %v, want ErrNoLeader after about %v", name, err, took, want)
				}
			}
		}
	})
}

// A fail-over takes less, so no request fails.
func TestInAFailOverNoRequestFails(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		n := c.followers(old)[0]
		c.crash(old)
		impatient := context.WithValue(t.Context(), FailWithoutLeader{}, true)
		all := ledRequests(n)
		served := make(chan error, len(all))
		for name, do := range all {
			go func() {
				err := do(impatient)
				if err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
				served <- err
			}()
		}
		for range all {
			if err := <-served; err != nil {
				t.Errorf("in a fail-over: %v", err)
			}
		}
		if v, _ := c.get(n, ReadLease, "k"); v != "v" {
			t.Errorf("k = %q, want v", v)
		}
	})
}
