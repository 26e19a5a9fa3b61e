package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// Negative control of TestChaos: reads that are not asked to be linearizable are
// stale when the leader has slept through its successor's writes, and the check
// says so. With these reads in the place of linearizable ones, it would pass
// only if it were blind: to those that come by calls, or by streams.
func TestChaosFindsStaleReads(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		for _, byStreams := range []bool{false, true} {
			if byStreams && p.Name != kvnode {
				break // to others fastkv sends calls
			}
			// On a busy machine a woken leader may hear of its successor before it reads.
			for try := 1; !findsStaleReads(t, p, byStreams); try++ {
				if try == 5 {
					t.Fatalf("by streams %v: %d leaders that woke have served no stale read that was found", byStreams, try)
				}
			}
		}
	})
}

// findsStaleReads tells whether both oracles find those that a woken leader serves. Its cluster is
// new: they take it for empty.
func findsStaleReads(t *testing.T, p testcluster.Program, byStreams bool) bool {
	t.Helper()
	c := &chaos{t: t, p: p, c: startCluster(t, p, electsSoon), start: time.Now(), did: make(map[string]int)}
	var err error
	c.l, err = load.Start(t.Context(), c.c.Members(), load.Config{
		Clients: 8, Slots: 5, KeyOps: 1000, Think: 3 * time.Millisecond, Timeout: 2 * time.Second, Seed: 1, Streams: byStreams,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := deadline(t)
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		c.fail(err)
	}
	for i := range c.c.Members() {
		c.probers = append(c.probers, c.l.Client(i, byStreams))
		c.probers[i].Serializable = true
	}
	// The woken leader is asked for the keys that it has known, too.
	c.keepKeys = true
	c.do(step{"pause", c.pauseLeader})
	history, err := c.l.Stop()
	if err != nil {
		t.Error(err)
	}
	final, err := load.Final(ctx, c.c.Members()[0])
	if err != nil {
		t.Fatal(err)
	}
	rep := linz.Check(history, final, 0)
	for _, oracle := range []string{"floor", "porcupine"} {
		if !slices.ContainsFunc(rep.Violations, func(v linz.Violation) bool { return v.Oracle == oracle }) {
			t.Logf("%s has found no stale read among %v", oracle, rep)
			return false
		}
	}
	t.Logf("found, as it should be: %s", strings.SplitAfterN(rep.Err().Error(), "\n", 4)[:3])
	return true
}
