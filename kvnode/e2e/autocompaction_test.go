package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// compacted reports whether a revision cannot be read any more.
func compacted(ctx context.Context, t *testing.T, c *clientv3.Client, rev int64) bool {
	t.Helper()
	_, err := c.Get(ctx, "k", clientv3.WithRev(rev))
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatalf("Get() at revision %d: %v", rev, err)
	}
	return err != nil
}

// In mode periodic a revision can be read for about the period after it was
// replaced, and some time later it cannot.
func TestAutoCompactionPeriodic(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		const period = 500 * time.Millisecond
		client, _ := memberClients(t, startCluster(t, p, "--auto-compaction-mode=periodic", "--auto-compaction-retention="+period.String()))
		ctx := deadline(t)
		// when[i] is a time at which revision 2+i had not been replaced yet, young
		// the first one that must be there.
		when, young, first := []time.Time{}, 0, 2
		for begin, gone := time.Now(), false; !gone; time.Sleep(10 * time.Millisecond) {
			put, err := client.Put(ctx, "k", "")
			must(t, err)
			if when = append(when, time.Now()); put.Header.GetRevision() != int64(first+len(when)-1) {
				t.Fatalf("write %d is at revision %d, want a cluster of its own", len(when), put.Header.GetRevision())
			}
			// Asked first, so that the compaction that ends the test is judged, too.
			gone = compacted(ctx, t, client, int64(first))
			for time.Since(when[young]) >= period/2 {
				young++
			}
			if compacted(ctx, t, client, int64(first+young)) && time.Since(when[young]) < period/2 {
				t.Fatalf("revision %d is gone %v after it was written, want it to stay for about %v", first+young, time.Since(when[young]), period)
			}
			if time.Since(begin) > patience {
				t.Fatalf("nothing is compacted in %v", time.Since(begin))
			}
		}
	})
}

// In mode revision all but so many revisions go every five minutes.
func TestAutoCompactionByRevision(t *testing.T) {
	if !*slowFlag {
		t.Skip("a member compacts every five minutes: run it with -args -slow")
	}
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		const retention = 10
		client, _ := memberClients(t, startCluster(t, p, "--auto-compaction-mode=revision", "--auto-compaction-retention=10"))
		rev := fill(deadline(t), t, client, "k", "a", 3000, 10) // 30 revisions
		oldest := rev - retention
		for begin := time.Now(); !compacted(deadline(t), t, client, oldest-1); time.Sleep(time.Second) {
			if time.Since(begin) > 6*time.Minute {
				t.Fatalf("nothing is compacted in %v", time.Since(begin))
			}
		}
		if compacted(deadline(t), t, client, oldest) {
			t.Errorf("revision %d is gone, want the last %d before %d to stay", oldest, retention, rev)
		}
	})
}
