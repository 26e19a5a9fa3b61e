package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/procs"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// Negative control of TestChaos: reads that are not asked to be linearizable are
// stale when the leader has slept through its successor's writes, and the check
// says so. With these reads in the place of linearizable ones, it would pass
// only if it were blind.
func TestChaosFindsStaleReads(t *testing.T) {
	eachServer(t, func(t *testing.T, p procs.Program) {
		c := &chaos{t: t, p: p, c: startCluster(t, p), start: time.Now(), did: make(map[string]int)}
		var err error
		c.l, err = load.Start(t.Context(), c.c.Members(), load.Config{
			Clients: 8, Slots: 5, KeyOps: 1000, Think: 3 * time.Millisecond, Timeout: 2 * time.Second, Seed: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), recovery)
		defer cancel()
		if err := c.l.WaitProgress(ctx, progress); err != nil {
			c.fail(err)
		}
		for i := range c.c.Members() {
			c.prober(c.c.Members()[i]).Serializable = true
		}
		// The woken leader is asked for the keys that it has known, too.
		c.keepKeys = true
		c.do(step{"pause", c.pauseLeader})
		history, err := c.l.Stop()
		if err != nil {
			t.Error(err)
		}
		final, err := load.Final(t.Context(), c.c.Members()[0])
		if err != nil {
			t.Fatal(err)
		}
		rep := linz.Check(history, final, 0)
		for _, oracle := range []string{"floor", "porcupine"} {
			found := slices.ContainsFunc(rep.Violations, func(v linz.Violation) bool { return v.Oracle == oracle })
			if !found {
				t.Errorf("%s has found no stale read among %v", oracle, rep)
			}
		}
		if err := rep.Err(); err != nil {
			t.Logf("found, as it should be: %s", strings.SplitAfterN(err.Error(), "\n", 4)[:3])
		}
	})
}
