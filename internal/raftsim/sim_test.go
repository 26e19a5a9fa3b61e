package raftsim

import (
	"flag"
	"reflect"
	"testing"
	"time"
)

var (
	firstSeed = flag.Uint64("first", 1, "first seed of TestSimulation")
	seedCount = flag.Int("seeds", 0, "number of seeds of TestSimulation; 0 takes the standard number")
	wallTime  = flag.Duration("for", 0, "time after which TestSimulation ends, whatever -seeds says")
	without   = flag.String("without", "", "rule that TestSimulation does without, a field of Rules")
	traceLen  = flag.Int("trace", 300, "events before a violation that TestSimulation prints")
	raftLog   = flag.Bool("raftlog", false, "print raft's own log lines as well")
	stopAfter = flag.Int("stop", 3, "number of seeds with violations after which TestSimulation ends")
)

// The numbers of seeds if -seeds does not say.
const shortSeeds, standardSeeds = 8, 150

// coverageSeeds is from how many seeds on everything must have happened.
const coverageSeeds = 100

func enough(run int, began time.Time) bool {
	switch {
	case *wallTime > 0:
		return time.Since(began) >= *wallTime
	case *seedCount > 0:
		return run >= *seedCount
	case testing.Short():
		return run >= shortSeeds
	default:
		return run >= standardSeeds
	}
}

// TestSimulation runs one simulation per seed. A violation prints a line that
// begins with VIOLATION and names the seed, and the last events before it.
func TestSimulation(t *testing.T) {
	began, rules := time.Now(), rulesWithout(t, *without)
	count, said, run, violations := &Count{}, &Said{}, 0, 0
	for !enough(run, began) && violations < *stopAfter {
		cfg := Config{Seed: *firstSeed + uint64(run), Rules: rules}
		r := Run(t, cfg)
		run++
		count.Add(&r.Count)
		said.Add(&r.Said)
		if r.Violation != nil {
			violations++
			cfg.Trace, cfg.RaftLog = *traceLen, *raftLog
			t.Error(Run(t, cfg).Report())
		}
	}
	t.Logf("seeds %d to %d, %.1f h of virtual time, %d violations, %v wall\n%v\n%v",
		*firstSeed, *firstSeed+uint64(run)-1, count.Virtual.Hours(), violations, time.Since(began).Round(time.Second), count, said)
	if run < coverageSeeds || *without != "" {
		return
	}
	for _, name := range count.Uncovered() {
		t.Errorf("not covered in %d seeds: %s", run, name)
	}
}

// TestSafety does without the rules that are there for liveness alone. A crash may
// then forget that an applied change is committed, which leaves a group without a leader
// at worst.
func TestSafety(t *testing.T) {
	rules := rulesWithout(t, *without)
	rules.DurableConf, rules.QuietExit, rules.HoldAppends = false, false, false
	began, run, violations, count := time.Now(), 0, 0, &Count{}
	for ; !enough(run, began) && violations < *stopAfter; run++ {
		cfg := Config{Seed: *firstSeed + uint64(run), Rules: rules, Tolerate: "no leader"}
		r := Run(t, cfg)
		count.Add(&r.Count)
		if r.Violation != nil {
			violations++
			cfg.Trace, cfg.RaftLog = *traceLen, *raftLog
			t.Error(Run(t, cfg).Report())
		}
	}
	t.Logf("seeds %d to %d, %d violations, %v wall\n%v", *firstSeed, *firstSeed+uint64(run)-1, violations, time.Since(began).Round(time.Second), count)
}

// rulesWithout returns all rules but one, by its name; all if the name is empty.
func rulesWithout(t *testing.T, name string) Rules {
	t.Helper()
	rules := AllRules()
	if name == "" {
		return rules
	}
	f := reflect.ValueOf(&rules).Elem().FieldByName(name)
	if !f.IsValid() {
		t.Fatalf("%q is no rule: want a field of Rules", name)
	}
	f.SetBool(false)
	return rules
}

// TestSameSeedSameTrace is the gate for everything else: a failure that does not
// repeat cannot be understood.
func TestSameSeedSameTrace(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 2
	}
	hashes := make(map[uint64]uint64)
	for seed := uint64(1); seed <= seeds; seed++ {
		cfg := Config{Seed: seed, Rules: AllRules(), Duration: 3 * time.Second}
		a := Run(t, cfg)
		cfg.Trace, cfg.RaftLog = 10, true // looking on changes nothing
		b := Run(t, cfg)
		if a.Hash != b.Hash || a.Count != b.Count || a.Said != b.Said {
			t.Errorf("seed %d: trace hashes %x and %x, want equal ones", seed, a.Hash, b.Hash)
		}
		if was, ok := hashes[a.Hash]; ok || a.Hash == 0 {
			t.Errorf("seeds %d and %d have the trace hash %x, want different ones", was, seed, a.Hash)
		}
		hashes[a.Hash] = seed
	}
}
