package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/leaderlease/go/internal/testcluster"
)

// An image of a member's directory is put back while the others go on. The member ends
// by itself, and says what to do.
func TestARestoredImageEndsItsMember(t *testing.T) {
	c := startCluster(t, onlyKvnode(t))
	ctx := deadline(t)
	m := follower(ctx, t, c)
	must(t, setBack(ctx, m, func() error {
		mustServe(t, m)
		return nil
	}))
	log := m.Log()
	for _, word := range setBackWords(m) {
		if !strings.Contains(log, word) {
			t.Errorf("the log does not say %q", word)
		}
	}
	if n := strings.Count(log, "message dropped"); n > 0 {
		t.Errorf("%d messages were dropped, want none", n)
	}
}

// setBack puts an image of m's directory back that is older than what m acknowledges
// in use, and waits until m has ended by itself.
func setBack(ctx context.Context, m *testcluster.Member, use func() error) error {
	image := m.Dir + ".image"
	if err := errors.Join(m.Kill(), os.CopyFS(image, os.DirFS(m.Dir)), m.Start()); err != nil {
		return err
	}
	if err := errors.Join(m.WaitReady(ctx), use(), m.Kill()); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(m.Dir), os.Rename(image, m.Dir), m.Start()); err != nil {
		return err
	}
	code, err := m.WaitExit(ctx)
	if err == nil && code <= 0 {
		err = fmt.Errorf("%s ended with code %d, want one above 0", m.Name, code)
	}
	return err
}

// setBackWords are what a member says that was set back.
func setBackWords(m *testcluster.Member) []string {
	return []string{"lost its data", "acknowledged", "member remove", "member add " + m.Name, "remove " + m.Dir, "--initial-cluster-state existing"}
}

// follower returns a member that does not lead.
func follower(ctx context.Context, t *testing.T, c *testcluster.Cluster) *testcluster.Member {
	t.Helper()
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Members() {
		if m != leader {
			return m
		}
	}
	t.Fatal("all members lead")
	return nil
}
