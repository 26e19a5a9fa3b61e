package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
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
	status, err := by.WaitStatus(ctx)
	if err != nil {
		return err
	}
	begun, before := time.Now(), len(by.Log())
	doubt := func(err error) bool { return inDoubt(ctx, by, err, status.RaftTerm, before) }
	err = by.Use(func(cl *clientv3.Client) error {
		return together(ctx, largeClients, func(ctx context.Context, i int) error { return c.putLarge(ctx, cl, i, doubt) })
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

// inDoubt tells whether a write by way of m may fail with err: nothing was done, or since the term
// and the log were those before, the leader was replaced, or m was sent a snapshot, which may cover
// the entry.
func inDoubt(ctx context.Context, m *testcluster.Member, err error, term uint64, before int) bool {
	s, unknown := m.WaitStatus(ctx)
	return unknown == nil && (errors.Is(err, rpctypes.ErrNoLeader) || s.RaftTerm != term || snapshotText.MatchString(m.Log()[before:]))
}

// putLarge puts the values of one client, each of them once unless the outcome is in doubt.
func (c *chaos) putLarge(ctx context.Context, cl *clientv3.Client, client int, doubt func(error) bool) error {
	for n := 0; n < largeEach; n++ {
		one, cancel := context.WithTimeout(ctx, recovery)
		_, err := cl.Put(one, largeKey(client, n), string(c.largeValue(client, n)))
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && doubt(err):
			c.t.Logf("put 1 MB at %s again after: %v", largeKey(client, n), err)
			n--
		case err != nil:
			return fmt.Errorf("put 1 MB at %s: %w", largeKey(client, n), err)
		}
	}
	return nil
}

// checkLarge reads what putLarge has put from one member.
func (c *chaos) checkLarge(ctx context.Context, m *testcluster.Member) error {
	return m.Use(func(cl *clientv3.Client) error {
		for i := range largeClients * largeEach {
			client, n := i/largeEach, i%largeEach
			var got *clientv3.GetResponse
			err := load.Retry(ctx, func(ctx context.Context) (err error) {
				got, err = cl.Get(ctx, largeKey(client, n))
				return err
			})
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
