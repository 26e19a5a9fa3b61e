package inproc

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/kvnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, opts Options) (c *Cluster, leader, follower int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	opts.Dir, opts.Keys = t.TempDir(), 4
	c, err := Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	leader, follower = roles(c)
	return c, leader, follower
}

// roles waits for a leader, and names a follower, too.
func roles(c *Cluster) (leader, follower int) {
	for leader = c.Leader(); leader < 0; leader = c.Leader() {
		time.Sleep(10 * time.Millisecond)
	}
	return leader, (leader + 1) % Members
}

// longest is the longest time that a test collects measurements.
const longest = time.Minute

// mixed reads and writes for a quarter of a second, and again until there is enough to
// judge: in that time a busy machine may do nothing, or lose its leader.
func mixed(t *testing.T, c *Cluster, client func(leader, follower int) load.Client, enough func(*load.Result) bool) *load.Result {
	t.Helper()
	for begun := time.Now(); ; {
		r, err := load.Load{
			Target: load.Each{Shared: client(roles(c))}, Clients: 8, Keys: load.Keys{Count: 4}, WritePercent: 20,
			Warmup: 50 * time.Millisecond, Duration: 250 * time.Millisecond,
		}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Read.Done > 0 && r.Write.Done > 0 && enough(r) || time.Since(begun) > longest {
			return r
		}
	}
}

func TestEachModeTakesItsPathAndIsNeverStale(t *testing.T) {
	c, _, _ := start(t, Options{})
	c.SetRTT(time.Millisecond)
	for _, arm := range []struct {
		name     string
		follower bool
		mode     kvnode.ReadMode
		path     load.Path
	}{
		{"lease at the leader", false, kvnode.ReadLease, load.PathLease},
		{"read-index at the leader", false, kvnode.ReadIndex, load.PathReadIndex},
		{"log at the leader", false, kvnode.ReadLog, load.PathLog},
		{"lease at a follower", true, kvnode.ReadLease, load.PathForwarded},
	} {
		at := func(leader, follower int) load.Client {
			if arm.follower {
				return c.Reader(follower, arm.mode)
			}
			return c.Reader(leader, arm.mode)
		}
		r := mixed(t, c, at, func(r *load.Result) bool {
			return r.AuditedStale > 0 || r.Read.Failed == 0 && nearlyAll(r, arm.path)
		})
		if r.AuditedStale > 0 || r.Read.Failed > 0 || r.Read.Done == 0 || r.Write.Done == 0 {
			t.Errorf("%s: %d stale of %d reads, %d writes, errors %v", arm.name, r.AuditedStale, r.Read.Done, r.Write.Done, r.Read.Errors)
		}
		if !nearlyAll(r, arm.path) {
			t.Errorf("%s: %d of %d reads by path %v, want nearly all: %v", arm.name, r.Read.Paths[arm.path], r.Read.Done, arm.path, r.Read.Paths)
		}
	}
}

func nearlyAll(r *load.Result, p load.Path) bool { return r.Read.Paths[p] >= r.Read.Done*9/10 }

// The audit is the benchmark's own test: it must find each deliberately wrong reader.
func TestTheAuditCatchesWrongReaders(t *testing.T) {
	c, _, _ := start(t, Options{})
	c.SetRTT(2 * time.Millisecond)
	for _, wrong := range Wrongs {
		at := func(leader, follower int) load.Client { return c.WrongReader(follower, leader, wrong) }
		caught := func(r *load.Result) bool { return r.AuditedStale > 0 }
		if r := mixed(t, c, at, caught); !caught(r) {
			t.Errorf("%s: 0 of %d reads are stale by the audit, want some", wrong, r.Read.Done)
		}
	}
}

func TestRoundTripTimeIsThatOfReadIndex(t *testing.T) {
	c, leader, _ := start(t, Options{})
	c.SetRTT(20 * time.Millisecond)
	begin := time.Now()
	if _, err := c.Reader(leader, kvnode.ReadIndex).Read(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 20*time.Millisecond {
		t.Errorf("a quorum round took %v, want 20ms at least", took)
	}
}

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
