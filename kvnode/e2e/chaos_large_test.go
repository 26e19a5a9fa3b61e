package e2e

import (
	"bytes"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/procs"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// What is written at once is twice what a leader has uncommitted at most, 8 MiB.
const (
	largeClients = 16
	largeEach    = 2
	largeBytes   = 1e6
)

// largeValues has many clients write large values by way of one follower. Each is
// answered, and each member has them all.
func (c *chaos) largeValues() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*recovery)
	defer cancel()
	lead, err := c.c.Leader(ctx)
	if err != nil {
		return err
	}
	by := c.others(lead)[c.random.IntN(len(c.c.Members())-1)]
	c.large++
	begun := time.Now()
	err = by.Use(func(cl *clientv3.Client) error {
		return together(ctx, largeClients, func(ctx context.Context, i int) error { return c.putLarge(ctx, cl, i) })
	})
	if err != nil {
		return fmt.Errorf("by way of %s: %w", by.Name, err)
	}
	c.t.Logf("%d values of 1 MB by way of a follower in %v", largeClients*largeEach, time.Since(begun).Round(time.Millisecond))
	for _, m := range c.c.Members() {
		if err := c.checkLarge(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// putLarge puts the values of one client, each of them once.
func (c *chaos) putLarge(ctx context.Context, cl *clientv3.Client, client int) error {
	for n := range largeEach {
		one, cancel := context.WithTimeout(ctx, recovery)
		_, err := cl.Put(one, largeKey(client, n), string(c.largeValue(client, n)))
		cancel()
		if err != nil {
			return fmt.Errorf("put 1 MB at %s: %w", largeKey(client, n), err)
		}
	}
	return nil
}

// checkLarge reads what putLarge has put from one member.
func (c *chaos) checkLarge(ctx context.Context, m *procs.Member) error {
	return m.Use(func(cl *clientv3.Client) error {
		for i := range largeClients * largeEach {
			client, n := i/largeEach, i%largeEach
			got, err := cl.Get(ctx, largeKey(client, n))
			if err != nil {
				return fmt.Errorf("get 1 MB from %s: %w", m.Name, err)
			}
			if want := c.largeValue(client, n); valueOf(got) != string(want) {
				return fmt.Errorf("%s holds %s at %s, want %s", m.Name, load.Short([]byte(valueOf(got))), largeKey(client, n), load.Short(want))
			}
		}
		return nil
	})
}

func largeKey(client, n int) string { return fmt.Sprintf("large/%d/%d", client, n) }

// largeValue differs each time.
func (c *chaos) largeValue(client, n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%8d", c.large*largeClients*largeEach+client*largeEach+n), largeBytes/8)
}
