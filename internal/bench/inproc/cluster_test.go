package inproc

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/internal/bench/load"
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
	for leader = c.Leader(); leader < 0; leader = c.Leader() {
		time.Sleep(10 * time.Millisecond)
	}
	return c, leader, (leader + 1) % Members
}

// mixed reads and writes for a quarter of a second, and again if a busy machine lets
// nothing be answered in that time.
func mixed(t *testing.T, c load.Client) *load.Result {
	t.Helper()
	for {
		r, err := load.Load{
			Target: load.Each{Shared: c}, Clients: 8, Keys: load.Keys{Count: 4}, WritePercent: 20,
			Warmup: 50 * time.Millisecond, Duration: 250 * time.Millisecond,
		}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Read.Failed > 0 || r.Write.Failed > 0 || r.Read.Done > 0 && r.Write.Done > 0 {
			return r
		}
	}
}

func TestEachModeTakesItsPathAndIsNeverStale(t *testing.T) {
	c, leader, follower := start(t, Options{})
	c.SetRTT(time.Millisecond)
	for _, arm := range []struct {
		name   string
		member int
		mode   kvnode.ReadMode
		path   load.Path
	}{
		{"lease at the leader", leader, kvnode.ReadLease, load.PathLease},
		{"read-index at the leader", leader, kvnode.ReadIndex, load.PathReadIndex},
		{"log at the leader", leader, kvnode.ReadLog, load.PathLog},
		{"lease at a follower", follower, kvnode.ReadLease, load.PathForwarded},
	} {
		r := mixed(t, c.Reader(arm.member, arm.mode))
		if r.AuditedStale > 0 || r.Read.Failed > 0 || r.Read.Done == 0 || r.Write.Done == 0 {
			t.Errorf("%s: %d stale of %d reads, %d writes, errors %v", arm.name, r.AuditedStale, r.Read.Done, r.Write.Done, r.Read.Errors)
		}
		if got := r.Read.Path(arm.path); got < r.Read.Done*9/10 {
			t.Errorf("%s: %d of %d reads by path %v, want nearly all: %v", arm.name, got, r.Read.Done, arm.path, r.Read.Paths)
		}
	}
}

// The audit is the benchmark's own test: what is wrong on purpose must show.
func TestTheAuditCatchesWrongReaders(t *testing.T) {
	c, leader, follower := start(t, Options{})
	c.SetRTT(2 * time.Millisecond)
	for _, wrong := range Wrongs {
		if r := mixed(t, c.WrongReader(follower, leader, wrong)); r.AuditedStale == 0 {
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

func TestFaultsFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for elections in real time")
	}
	for name, fault := range map[string]func(*Cluster, int) error{
		"kill": (*Cluster).Kill, "pause": (*Cluster).Pause, "cut": (*Cluster).Cut, "transfer": (*Cluster).Transfer,
	} {
		t.Run("fault="+name, func(t *testing.T) {
			t.Parallel()
			c, leader, _ := start(t, Options{Tick: 20 * time.Millisecond})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := fault(c, leader)
			for errors.Is(err, kvnode.ErrTimeout) && ctx.Err() == nil {
				err = fault(c, leader) // a transfer has less than half a second, which a busy machine may not
			}
			if err != nil && !errors.Is(err, kvnode.ErrNotLeader) {
				t.Fatal(err)
			}
			members := make([]load.Client, Members)
			for i := range members {
				members[i] = c.Reader(i, kvnode.ReadLease)
			}
			roam := load.Roam{Members: members, First: leader}.Client(0)
			for {
				short, end := context.WithTimeout(ctx, 200*time.Millisecond)
				_, err := roam.Write(short, 0)
				end()
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("no write after the fault: %v", err)
				}
			}
		})
	}
}
