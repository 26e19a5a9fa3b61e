package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// setMemberBack puts an older copy of a member's directory back. The member ends by
// itself with the right error, the others go on, and it is replaced as the error says.
func (c *chaos) setMemberBack() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*recovery)
	defer cancel()
	m := c.anyMember()
	before := len(m.Log())
	err := setBack(ctx, m, func() error {
		return m.Use(func(cl *clientv3.Client) error { return putAndGet(ctx, cl, "before it is set back") })
	})
	if err != nil {
		return fmt.Errorf("%s was set back: %w", m.Name, err)
	}
	for _, word := range setBackWords(m) {
		if said := m.Log()[before:]; !strings.Contains(said, word) {
			return fmt.Errorf("%s was set back and has ended, but does not say %q:\n%s", m.Name, word, m.LogTail())
		}
	}
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		return fmt.Errorf("beside a member that was set back the others do not serve: %w", err)
	}
	for _, o := range c.others(m) {
		if !o.Running() {
			return fmt.Errorf("%s was set back, and %s has ended as well:\n%s", m.Name, o.Name, o.LogTail())
		}
	}
	return c.replace(ctx, m)
}

// replace makes a new member, with an empty directory, of one that does not run.
func (c *chaos) replace(ctx context.Context, m *testcluster.Member) error {
	if err := c.untilForgotten(ctx, m, 0); err != nil { // it may be the first step
		return err
	}
	before := len(m.Log())
	if err := replaceMember(ctx, c.c, m, c.others(m)[0]); err != nil {
		return err
	}
	return c.waitCaughtUp(ctx, m, before)
}

// replaceMember replaces a member with an unusable directory, as an operator does, by requests to
// another member.
func replaceMember(ctx context.Context, c *testcluster.Cluster, m, by *testcluster.Member) error {
	err := by.Use(func(cl *clientv3.Client) error {
		if err := load.Retry(ctx, func(ctx context.Context) error { return removeNamed(ctx, cl, m.Name) }); err != nil {
			return fmt.Errorf("remove %s: %w", m.Name, err)
		}
		if err := load.Retry(ctx, func(ctx context.Context) error { return addNamed(ctx, cl, m) }); err != nil {
			return fmt.Errorf("add %s: %w", m.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := c.Join(m.Name); err != nil {
		return err
	}
	if err := errors.Join(m.Wipe(), m.Start()); err != nil {
		return err
	}
	return m.WaitReady(ctx)
}

// removeNamed removes the member of that name, if there is one.
func removeNamed(ctx context.Context, cl *clientv3.Client, name string) error {
	list, err := cl.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.GetName() == name {
			_, err = cl.MemberRemove(ctx, m.GetID())
		}
	}
	return err
}

// addNamed adds a member with m's address for the others, if there is none.
func addNamed(ctx context.Context, cl *clientv3.Client, m *testcluster.Member) error {
	list, err := cl.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, other := range list.Members {
		for _, url := range other.GetPeerURLs() {
			if strings.HasSuffix(url, "//"+m.Peer) {
				return nil
			}
		}
	}
	_, err = cl.MemberAdd(ctx, []string{"http://" + m.Peer})
	return err
}
