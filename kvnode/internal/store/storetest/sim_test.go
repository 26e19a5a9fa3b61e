package storetest_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/internal/waltest"
	"github.com/leaderlease/go/leaderlease/leasetest/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	firstSeed = flag.Uint64("first", 1, "first seed of TestSimulation")
	seedCount = flag.Int("seeds", 0, "number of seeds of TestSimulation; 0 takes the standard number")
	stopAfter = flag.Int("stop", 5, "number of seeds with violations after which TestSimulation ends")
	messages  = flag.Bool("messages", false, "keep messages in the time line of TestSimulation")
)

// compactEvery is the mean time between two checkpoints of a node.
const compactEvery = 4 * time.Second

func defaultSeeds(standard int) int {
	switch {
	case *seedCount > 0:
		return *seedCount
	case testing.Short():
		return 1
	default:
		return standard
	}
}

// TestSimulation runs the simulator of leasetest/sim, with all its faults and oracles,
// over the real store. A violation prints a line that begins with VIOLATION.
func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("TestSimulationOverWAL does the same over a log")
	}
	var stats Stats
	simulate(t, standardSeeds, &stats, func(*sim.Config) {})
}

// TestSimulationOverWAL runs the simulation with the real log under the store.
func TestSimulationOverWAL(t *testing.T) {
	var stats Stats
	var disks waltest.Stats
	simulate(t, standardSeedsOverWAL, &stats, func(cfg *sim.Config) {
		cfg.NewDisk = waltest.NewDisk(cfg.Seed, &disks)
	})
	t.Logf("disks: %+v", disks)
	if disks.Interrupted == 0 {
		t.Errorf("disks: %+v: none was ever interrupted", disks)
	}
}

// Default numbers of seeds. From coverageSeeds on, each fault must have occurred.
const (
	standardSeeds        = 50
	standardSeedsOverWAL = 15
	boltSeeds            = 12
	coverageSeeds        = 15
)

func simulate(t *testing.T, seeds int, stats *Stats, amend func(cfg *sim.Config)) {
	t.Helper()
	sum, violations, began := &sim.Result{}, 0, time.Now()
	n := defaultSeeds(seeds)
	for seed := *firstSeed; seed < *firstSeed+uint64(n) && violations < *stopAfter; seed++ {
		r := one(t, seed, func(cfg *sim.Config, machine *Config) {
			machine.Stats = stats
			amend(cfg)
		})
		r.Require(t)
		sum.Add(r)
		if r.Violation != nil {
			violations++
		}
	}
	t.Logf("simulated %.1f h, %d lease reads, %d writes, %d elections, %d violations, %d seeds, %v wall",
		sum.Elapsed.Hours(), sum.AllLeaseReads(), sum.Writes, sum.Elections, violations, n, time.Since(began).Round(time.Second))
	t.Logf("machines: %+v", *stats)
	if n < coverageSeeds {
		return
	}
	for name, hits := range map[string]int{
		"checkpoints": stats.Checkpoints, "restores": stats.Restores, "checkpoints that failed midway": stats.Partial, "failed commits": stats.Failed,
		"refused checkpoints": stats.Refused, "damaged snapshots": stats.Damaged,
		"starts behind": stats.Behind, "failed commits found": stats.Unsaid,
		"power failures": stats.PowerFailures, "starts from memory alone": stats.Undurable,
		"entries applied before": stats.Stale, "fenced commands": stats.Fenced, "compactions": stats.Compactions,
	} {
		if hits == 0 {
			t.Errorf("not covered in %d seeds: %s", n, name)
		}
	}
}

// one runs one seed in a synctest bubble. There the machine waits for the goroutines that free old
// versions, so a run repeats. In every fourth run it does not wait, so that checkpoints contain
// versions that are compacted and not freed yet.
func one(t *testing.T, seed uint64, amend func(cfg *sim.Config, machine *Config)) (r *sim.Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		machine := Config{Seed: seed, WaitIdle: synctest.Wait, Cleanup: t.Cleanup, Dir: t.TempDir()}
		if seed%4 == 0 {
			machine.WaitIdle = nil
		}
		cfg := sim.Config{Seed: seed, Compact: compactEvery, Messages: *messages}
		amend(&cfg, &machine)
		cfg.NewMachine = NewMachine(machine)
		r = sim.Run(t, cfg)
	})
	return r
}

// TestSimulationOverBolt runs the simulation with checkpoints in bbolt.
func TestSimulationOverBolt(t *testing.T) {
	var stats Stats
	seeds := min(defaultSeeds(boltSeeds), boltSeeds)
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		one(t, seed, func(cfg *sim.Config, machine *Config) {
			if testing.Short() {
				cfg.Duration = 30 * time.Second
			}
			machine.Bolt, machine.Stats = true, &stats
		}).Require(t)
	}
	t.Logf("machines: %+v", stats)
	if seeds == boltSeeds && (stats.Failed == 0 || stats.Undurable == 0 || stats.PowerFailures == 0) {
		t.Errorf("not covered in %d seeds: a failed commit, a power failure, or a start from memory alone", seeds)
	}
}

// A run must repeat, or its failure cannot be analysed.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := uint64(1); seed <= uint64(min(defaultSeeds(5), 5)); seed++ {
		run := func() uint64 {
			return one(t, seed, func(cfg *sim.Config, _ *Config) { cfg.Duration = 15 * time.Second }).Hash
		}
		if a, b := run(), run(); a != b || a == 0 {
			t.Errorf("seed %d: trace hashes %x and %x, want equal ones", seed, a, b)
		}
	}
}
