package e2e

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/e2e/cluster"
)

// An image of a member's directory is put back while the others go on. The member ends
// by itself, and says what to do.
func TestARestoredImageEndsItsMember(t *testing.T) {
	c := startCluster(t, onlyKvnode(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := follower(ctx, t, c)
	must(t, m.Kill())
	image := m.Dir + ".image"
	must(t, os.CopyFS(image, os.DirFS(m.Dir)))
	must(t, m.Start())
	must(t, m.WaitReady(ctx))
	mustServe(t, m)
	must(t, m.Kill())
	must(t, errors.Join(os.RemoveAll(m.Dir), os.Rename(image, m.Dir)))
	must(t, m.Start())
	code, err := m.WaitExit(ctx)
	if err != nil || code == 0 {
		t.Fatalf("WaitExit() = %d, %v, want another code than 0", code, err)
	}
	log := m.Log()
	for _, word := range []string{"lost its data", "acknowledged", "member remove", "member add m", "remove " + m.Dir, "--initial-cluster-state existing"} {
		if !strings.Contains(log, word) {
			t.Errorf("the log does not say %q", word)
		}
	}
	if n := strings.Count(log, "message dropped"); n > 0 {
		t.Errorf("%d messages were dropped, want none", n)
	}
}

// follower returns a member that does not lead.
func follower(ctx context.Context, t *testing.T, c *cluster.Cluster) *cluster.Member {
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
