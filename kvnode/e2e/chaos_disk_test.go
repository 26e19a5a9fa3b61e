package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// ballast is how many MB of entries are written at most until a full disk refuses
// one: what is reserved in the log, several segments of 64 MB.
const ballast = 400

// stored is how many MB of that are put into the store. A checkpoint then needs more than
// the free pages of its file, and fails; without it each checkpoint would free segments
// of the log, and the disk would never have to take anything new.
const stored = 40

// fullDisk lets the leader's disk become full. It says so and serves reads, another
// member leads, and the cluster serves. Once there is room it goes on by itself.
func (c *chaos) fullDisk() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*recovery)
	defer cancel()
	m := c.small
	if err := c.makeLead(ctx, m); err != nil {
		return err
	}
	if err := c.disk.fill(); err != nil {
		return err
	}
	defer func() { _ = c.disk.free() }() // for what is judged after an error
	before := len(m.Log())
	if err := m.Use(func(cl *clientv3.Client) error { return c.untilFull(ctx, cl, m, before) }); err != nil {
		return err
	}
	if err := c.untilAside(ctx, m, before); err != nil {
		return fmt.Errorf("with a full disk: %w", err)
	}
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		return fmt.Errorf("with a full disk at %s the others do not serve: %w", m.Name, err)
	}
	if err := staleReads(ctx, m, "cut", 1, func(*clientv3.GetResponse) error { return nil }); err != nil {
		return fmt.Errorf("with a full disk %s does not serve reads: %w", m.Name, err)
	}
	if err := c.disk.free(); err != nil {
		return err
	}
	if err := untilReadyz(ctx, m, http.StatusOK); err != nil {
		return fmt.Errorf("once there is room again: %w", err)
	}
	return m.Use(func(cl *clientv3.Client) error {
		// Until m has caught up a snapshot may cover the entry, so that m never learns the outcome.
		if err := load.Retry(ctx, func(ctx context.Context) error { _, err := cl.Delete(ctx, "ballast"); return err }); err != nil {
			return err
		}
		return putAndGet(ctx, cl, "there is room again")
	})
}

// untilFull fills the log by way of m until m has no room: it refuses, or says so in
// its log if another one leads by now. What is not stored has a condition that does not
// hold.
func (c *chaos) untilFull(ctx context.Context, cl *clientv3.Client, m *testcluster.Member, before int) error {
	large := string(bytes.Repeat([]byte("x"), 1e6))
	var last error
	for n := range ballast {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, last = cl.Txn(one).If(clientv3.Compare(clientv3.Version("ballast"), "<", stored)).Then(clientv3.OpPut("ballast", large)).Commit()
		cancel()
		if errors.Is(last, rpctypes.ErrNoSpace) || strings.Contains(m.Log()[before:], fullText) {
			c.t.Logf("the disk of %s was full after %d MB", m.Name, n)
			return nil
		}
		if !m.Running() {
			return fmt.Errorf("a full disk has ended %s:\n%s", m.Name, m.LogTail())
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(err, last)
		}
	}
	return errors.Join(fmt.Errorf("%s took %d MB with a full disk, want %w", m.Name, ballast, rpctypes.ErrNoSpace), last)
}

// What a member says of its disk.
const (
	fullText    = "disk is full"
	hasRoomText = "disk has room again"
)

// untilAside waits until a member with a full disk is not ready and another one leads,
// or until a checkpoint has freed segments of its log, for which bbolt may need no room.
func (c *chaos) untilAside(ctx context.Context, m *testcluster.Member, before int) error {
	for {
		if strings.Contains(m.Log()[before:], hasRoomText) {
			c.t.Logf("a checkpoint of %s has made room on its full disk", m.Name)
			return nil
		}
		code, body := page(ctx, m, "/readyz")
		lead, err := c.c.Leader(ctx)
		if code == http.StatusServiceUnavailable && err == nil && lead != m {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("/readyz of %s was %d last, want 503, and another leader (%w)\n%s", m.Name, code, err, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// makeLead hands leadership to m.
func (c *chaos) makeLead(ctx context.Context, m *testcluster.Member) error {
	return load.Retry(ctx, func(ctx context.Context) error {
		s, err := m.Status(ctx)
		if err != nil || s.Leader == s.Header.GetMemberId() {
			return err
		}
		lead, err := c.c.Leader(ctx)
		if err != nil {
			return err
		}
		return lead.Use(func(cl *clientv3.Client) error {
			_, err := cl.MoveLeader(ctx, s.Header.GetMemberId())
			return err
		})
	})
}

// untilReadyz waits until /readyz of a member that runs has that code.
func untilReadyz(ctx context.Context, m *testcluster.Member, code int) error {
	for {
		got, body := page(ctx, m, "/readyz")
		if got == code {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("/readyz of %s was %d last, want %d: %w\n%s", m.Name, got, code, ctx.Err(), body)
		case <-time.After(5 * time.Millisecond):
		}
		if !m.Running() {
			return fmt.Errorf("%s has ended, want %d of /readyz:\n%s", m.Name, code, m.LogTail())
		}
	}
}
