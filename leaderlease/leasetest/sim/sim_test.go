package sim

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/leaderlease/leasetrace"
)

var (
	firstSeed = flag.Uint64("first", 1, "first seed of TestSimulation")
	seedCount = flag.Int("seeds", 0, "number of seeds of TestSimulation; 0 takes the standard number")
	skipGuard = flag.Bool("skip-guard", false, "run TestSimulation without the guard oracle")
	minimise  = flag.String("minimise", "", "file for the minimised schedule of the first violation of TestSimulation")
	control   = flag.String("control", "", "assumption that TestSimulation breaks: clocks, margin, stock, suspend, forget, no-hints or proof")
	raftOnly  = flag.Bool("raft", false, "bare RawNodes in TestSimulation")
	without   = flag.String("without", "", "rule that the nodes of TestSimulation omit, a field of leasetest.Rules")
	replay    = flag.String("replay", "", "schedule file that TestSimulation runs instead of drawing schedules")
	messages  = flag.Bool("messages", false, "keep messages in the time line of TestSimulation")
	stopAfter = flag.Int("stop", 5, "number of seeds with violations after which TestSimulation ends")
	traced    = flag.Uint64("traced", 4, "TestSimulation judges the traces of each so-manieth seed; 0 for none")
	traceDir  = flag.String("trace", "", "directory that TestSimulation writes the traces of all seeds to, a file each")
	simHours  = flag.Float64("hours", 0, "simulated hours after which TestSimulation ends, whatever -seeds says")
	processes = flag.Int("procs", 1, "number of processes of TestSimulation; 0 takes one for each core")
	keepIn    = flag.String("keep", "", "directory in which TestSimulation, with other -procs than 1, keeps what it has done, and finds it when it is run again")
	tellTally = flag.Bool("tally", false, "print the tally of TestSimulation for another process")
)

// The numbers of seeds without -seeds. The standard run simulates about 42 hours with 22,000
// elections.
const shortSeeds, standardSeeds = 3, 800

// skipShort skips simulations that take minutes under the race detector, which finds
// nothing in their one goroutine.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes under the race detector")
	}
}

func defaultSeeds() int {
	switch {
	case *seedCount > 0:
		return *seedCount
	case testing.Short():
		return shortSeeds
	default:
		return standardSeeds
	}
}

// TestSimulation runs one simulation per seed, and prints one line about all of
// them. A violation prints a line that begins with VIOLATION and names the seed
// and the oracle.
func TestSimulation(t *testing.T) {
	began, simulate := time.Now(), simulateHere
	if *processes != 1 {
		simulate = simulateInProcesses
	}
	sum := simulate(t)
	t.Logf("%s, %v wall", sum.line(), time.Since(began).Round(time.Second))
	t.Logf("coverage:\n%s", sum.Sum.Coverage())
	if *tellTally {
		if err := sum.print(os.Stdout); err != nil {
			t.Error(err)
		}
	}
	if sum.Ran < coverageSeeds || len(sum.Violations) > 0 || *replay != "" || *raftOnly {
		return
	}
	for _, name := range sum.Sum.Uncovered() {
		t.Errorf("not covered in %d seeds: %s", sum.Ran, name)
	}
}

// simulateHere is TestSimulation in this process.
func simulateHere(t *testing.T) *tally {
	g, sum := flagGoal(), &tally{Share: share{*firstSeed, defaultSeeds()}}
	for !g.reached(&sum.Sum, sum.Ran) && len(sum.Violations) < *stopAfter {
		r := simulateSeed(t, *firstSeed+uint64(sum.Ran))
		sum.Ran++
		sum.Sum.Add(r)
		saveTraces(t, r)
		if r.Violation != nil {
			sum.Violations = append(sum.Violations, r.Line())
			r.Require(t)
			saveMinimised(t, r)
		}
	}
	return sum
}

// coverageSeeds is from how many seeds on every rule must have decided
// something.
const coverageSeeds = 300

// goal is when a run ends: after so many simulated hours, or else so many seeds.
type goal struct {
	seeds int
	hours float64
}

func flagGoal() goal { return goal{defaultSeeds(), *simHours} }

func (g goal) reached(sum *Result, seeds int) bool {
	if g.hours > 0 {
		return sum.Elapsed.Hours() >= g.hours
	}
	return seeds >= g.seeds
}

func simulateSeed(t *testing.T, seed uint64) *Result {
	cfg := Config{Seed: seed, Messages: *messages, SkipGuard: *skipGuard, Amend: controls[*control]}
	if *raftOnly {
		cfg.Duration, cfg.Amend = time.Minute, (*Schedule).RunRaftAlone
	}
	if draw := cfg.Amend; *without != "" {
		cfg.Amend = func(s *Schedule) {
			if draw != nil {
				draw(s)
			}
			s.Swarm.Without = *without
		}
	}
	cfg.Trace = *traceDir != "" || *traced > 0 && seed%*traced == 0
	if *replay == "" {
		return Run(t, cfg)
	}
	cfg.Schedule = readSchedule(t, *replay)
	r := Run(t, cfg)
	t.Logf("time line:\n%s", r.Timeline(r.Elapsed))
	return r
}

// TestSameSeedSameTrace is the gate for everything else: a failure that does
// not repeat cannot be understood.
func TestSameSeedSameTrace(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		a := Run(t, Config{Seed: seed, Duration: 30 * time.Second})
		b := Run(t, Config{Seed: seed, Duration: 30 * time.Second})
		if a.Hash != b.Hash || a.Hash == 0 {
			t.Errorf("seed %d: trace hashes %x and %x, want equal ones", seed, a.Hash, b.Hash)
		}
	}
}

func saveTraces(t *testing.T, r *Result) {
	if *traceDir == "" {
		return
	}
	f, err := os.Create(filepath.Join(*traceDir, fmt.Sprintf("seed-%d.trace", r.Seed)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(leasetrace.Write(f, r.Traces), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func saveMinimised(t *testing.T, r *Result) {
	if *minimise == "" {
		return
	}
	small := Minimise(t, Config{Trace: r.Traces != nil}, r, 500)
	f, err := os.Create(*minimise)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := small.Schedule.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	t.Logf("minimised into %s: %s\n%s", *minimise, small.Line(), small.Timeline(30*time.Second))
	*minimise = ""
}

// A simulation lives on a few megabytes and makes forty of garbage. At Go's usual
// target more than a third of its processor time went into collecting that.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m)
}
