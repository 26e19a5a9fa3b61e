package waltest

import (
	"flag"
	"testing"
	"testing/cryptotest"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
	"github.com/leaderlease/go/leaderlease/leasetest/sim"
	"github.com/leaderlease/go/raftwal"
)

var _ leaderlease.PromiseStore = (*raftwal.Log)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seedCount = flag.Int("seeds", 0, "number of seeds of TestSimulationOverWAL; 0 takes the standard number")

// A write that was acknowledged survives that every node crashes, again and
// again, and loses what it had not synced.
func TestWritesSurviveCrashesOfAllNodes(t *testing.T) {
	for name, opts := range map[string]leasetest.NodeOptions{
		"sync":  {},
		"async": {Async: true, DiskDelay: func() time.Duration { return 2 * time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1)
			var stats Stats
			c := leasetest.New(leasetest.Options{
				NewDisk: NewDisk(1, &stats),
				Node:    func(uint64) leasetest.NodeOptions { return opts },
			})
			for round := uint64(1); round <= 30; round++ {
				c.Run(10 * time.Second)
				leader := c.Leader()
				if leader == nil {
					t.Fatalf("round %d: no leader", round)
				}
				written := false
				for key := range uint64(20) {
					leader.Write(key, round*100+key, func(uint64) { written = key == 19 })
				}
				c.Run(time.Second)
				if !written {
					t.Fatalf("round %d: writes were never applied", round)
				}
				for _, n := range c.Nodes() {
					if round%3 == n.ID%3 {
						n.Compact()
					}
					n.Crash(int(round) % 2)
				}
				c.Run(time.Second)
				for _, n := range c.Nodes() {
					n.Restart()
				}
			}
			t.Logf("%+v", stats)
			if stats.Reopens != 90 || stats.Torn == 0 || stats.Restarts == 0 || stats.Segments < 20 || stats.Recycled == 0 {
				t.Errorf("stats = %+v, want 90 reopens, torn tails, restarts, and segments that are recycled", stats)
			}
		})
	}
}

const shortSeeds = 3

// TestSimulationOverWAL runs the simulator of leasetest/sim, with all its faults and
// oracles, over raftwal on disks that lose what was not synced.
func TestSimulationOverWAL(t *testing.T) {
	seeds := *seedCount
	switch {
	case seeds == 0 && testing.Short():
		seeds = shortSeeds
	case seeds == 0:
		seeds = standardSeeds
	}
	var sum sim.Result
	var stats Stats
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		r := sim.Run(t, sim.Config{Seed: seed, NewDisk: NewDisk(seed, &stats)})
		r.Require(t)
		sum.Add(r)
	}
	t.Logf("%d seeds, %.1f h, disks: %+v", seeds, sum.Elapsed.Hours(), stats)
	if stats.Reopens == 0 || stats.Interrupted == 0 {
		t.Errorf("stats = %+v: no disk was ever interrupted", stats)
	}
}

// The disks' crashes repeat with the seed, or a failure could not be replayed.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		run := func() uint64 {
			return sim.Run(t, sim.Config{
				Seed: seed, Duration: 30 * time.Second, NewDisk: NewDisk(seed, nil),
			}).Hash
		}
		if a, b := run(), run(); a != b || a == 0 {
			t.Errorf("seed %d: trace hashes %x and %x, want equal ones", seed, a, b)
		}
	}
}
