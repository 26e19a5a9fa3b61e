package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
	"github.com/leaderlease/go/kvnode/server/status"
)

// snapshotText is what kvnode and etcd log when they have taken over a snapshot
// that another member has sent; an ordinary start says neither.
var snapshotText = regexp.MustCompile(`restored a snapshot|applied snapshot`)

// prober returns the client that asks member m on the test's own behalf. Every other one sends by
// streams, if there are any; after a fail-over another member leads.
func (c *chaos) prober(m *testcluster.Member) *linz.EtcdClient {
	if c.probers == nil {
		c.probers = make([]*linz.EtcdClient, len(c.c.Members()))
	}
	i := slices.Index(c.c.Members(), m)
	if c.probers[i] == nil {
		c.probers[i] = c.l.Client(i, i%2 == 1)
	}
	return c.probers[i]
}

// pauseLeader stops the leader until another one has been elected and has
// written. A read that waits in the stopped leader's socket is the first thing
// it finds when it wakes, believing that no time has passed.
func (c *chaos) pauseLeader() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), recovery)
	defer cancel()
	old, err := c.c.Leader(ctx)
	if err != nil {
		return err
	}
	if err := old.Pause(); err != nil {
		return err
	}
	// A member that is not woken could not be killed in peace either.
	defer func() { err = errors.Join(err, old.Resume()) }()
	if err := c.waitOtherLeader(ctx, old); err != nil {
		return err
	}
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		return fmt.Errorf("without its leader the cluster does not serve: %w", err)
	}
	return c.wake(ctx, old)
}

// waitOtherLeader waits until a member leads that is not old.
func (c *chaos) waitOtherLeader(ctx context.Context, old *testcluster.Member) error {
	for {
		for _, m := range c.others(old) {
			if s, err := m.Status(ctx); err == nil && s.Leader == s.Header.GetMemberId() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no member leads instead of %s: %w", old.Name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wake wakes a member while one read after the other waits for it.
func (c *chaos) wake(ctx context.Context, old *testcluster.Member) error {
	var wg sync.WaitGroup
	asked := make(chan struct{})
	p := c.prober(old)
	wg.Go(func() {
		for i := range 20 {
			if i == 0 {
				close(asked)
			}
			// An error is an honest answer.
			_, _ = p.Get(ctx, c.l.Keys.Key(i%c.l.Keys.Len()))
		}
	})
	<-asked
	time.Sleep(20 * time.Millisecond) // until the first is in the socket
	c.woken++
	err := old.Resume()
	wg.Wait()
	return err
}

// catchUp keeps a member down until the log has been compacted beyond what it
// has, and restarts it.
func (c *chaos) catchUp() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*recovery)
	defer cancel()
	m := c.anyMember()
	if err := m.Kill(); err != nil {
		return err
	}
	has := uint64(0)
	for _, o := range c.others(m) {
		has = max(has, statusOf(ctx, o).LastIndex)
	}
	// Writes that fail are not counted, and one more snapshot is needed for the
	// entries that the last one kept.
	for n := c.l.Writes() + 3*(snapshotCount+catchUpEntries); c.l.Writes() < n; {
		if err := c.l.WaitProgress(ctx, progress); err != nil {
			return err
		}
	}
	if err := c.untilForgotten(ctx, m, has); err != nil {
		return err
	}
	before := len(m.Log())
	if err := c.restart(m); err != nil {
		return err
	}
	return c.waitCaughtUp(ctx, m, before)
}

// untilForgotten waits until the logs of all members but m begin beyond index. A busy disk delays
// that. It cannot be observed in etcd.
func (c *chaos) untilForgotten(ctx context.Context, m *testcluster.Member, index uint64) error {
	for _, o := range c.others(m) {
		for c.p.Name == kvnode && statusOf(ctx, o).Checkpoint.Index <= index+catchUpEntries {
			if err := c.l.WaitProgress(ctx, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

// statusOf asks for the page /status, which kvnode alone has.
func statusOf(ctx context.Context, m *testcluster.Member) (s status.Report) {
	_, body := page(ctx, m, "/status")
	_ = json.Unmarshal(body, &s) // the member does not answer, or is etcd
	return s
}

// waitCaughtUp waits until m has what all had when it came back.
func (c *chaos) waitCaughtUp(ctx context.Context, m *testcluster.Member, before int) error {
	final, err := load.Final(ctx, c.others(m)[0])
	if err != nil {
		return err
	}
	if _, err := load.Hashes(ctx, []*testcluster.Member{m}, final.Revision); err != nil {
		return fmt.Errorf("%s does not catch up: %w", m.Name, err)
	}
	if !snapshotText.MatchString(m.Log()[before:]) && !c.compactionWaits() {
		return fmt.Errorf("%s caught up, but its log does not tell of a snapshot", m.Name)
	}
	return nil
}

// compactionWaits reports whether a member of etcd has installed a snapshot. For 30 s after that its
// leader compacts nothing, so a member that comes back meanwhile finds the log whole.
func (c *chaos) compactionWaits() bool {
	return c.p.Name == etcd && slices.ContainsFunc(c.c.Members(), func(m *testcluster.Member) bool {
		return snapshotText.MatchString(m.Log())
	})
}
