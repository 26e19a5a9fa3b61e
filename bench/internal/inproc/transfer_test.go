package inproc

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode"
)

// transfer hands leadership from member i to the next one.
func (c *Cluster) transfer(i int) error {
	return c.nodes[i].MoveLeader(context.Background(), c.nodes[(i+1)%len(c.nodes)].ID())
}

// BenchmarkTransfer hands leadership on, from MoveLeader to the next write that is
// acknowledged and the next read under the new leader's lease. What an election
// writes to the disk is in it (V9). Members share one process and one disk.
func BenchmarkTransfer(b *testing.B) {
	c, err := Start(b.Context(), Options{Dir: b.TempDir(), Keys: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}()
	var took []time.Duration
	for b.Loop() {
		leader := c.Leader()
		for leader < 0 {
			time.Sleep(time.Millisecond)
			leader = c.Leader()
		}
		next := c.nodes[(leader+1)%Members]
		start := time.Now()
		if err := c.transfer(leader); err != nil {
			b.Fatal(err)
		}
		if _, err := c.put(b.Context(), next, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := next.Read(b.Context(), kvnode.ReadLease); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
