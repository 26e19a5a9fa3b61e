package raftsim

import (
	"flag"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without any one of the rules, the simulator finds the violation that the rule prevents. Each
// case begins with a seed that has found it, and may take up to within more seeds, because a
// change of the source changes the runs.
func TestEachRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector, which finds nothing in one goroutine")
	}
	tests := []struct {
		rule, kind, text string
		seed, within     uint64
	}{
		{"HoldVotes", "led twice", "is led by", 30, 100},
		{"DurableConf", "no leader", "nothing was committed", 41, 100},
		{"CompactByRaft", "panic", "error scanning unapplied entries", 2, 20},
		{"OwnTermReads", "stale read", "was answered", 2, 50},
		{"QuietExit", "no leader", "nothing was committed", 72, 150},
		{"HoldAppends", "no leader", "nothing was committed", 57, 1000},
		{"RecoverCommit", "diverged", "without the entry at", 26, 100},
	}
	for _, tc := range tests {
		t.Run(tc.rule, func(t *testing.T) {
			rules := rulesWithout(t, tc.rule)
			for seed := tc.seed; seed <= tc.seed+tc.within; seed++ {
				v := Run(t, Config{Seed: seed, Rules: rules}).Violation
				if v == nil {
					continue
				}
				t.Logf("seed %d: %v", seed, v)
				if v.Kind != tc.kind || !strings.Contains(v.Text, tc.text) {
					t.Errorf("seed %d finds %v, want %s", seed, v, tc.kind)
				}
				return
			}
			t.Errorf("%d seeds from %d on find nothing without %s", tc.within, tc.seed, tc.rule)
		})
	}
}

// A term that is led twice leads to different logs, if the run continues.
func TestLedTwiceDiverges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector, which finds nothing in one goroutine")
	}
	rules := rulesWithout(t, "HoldVotes")
	for seed := uint64(1); seed <= 300; seed++ {
		if v := Run(t, Config{Seed: seed, Rules: rules, Tolerate: "led twice"}).Violation; v != nil {
			t.Logf("seed %d: %v", seed, v)
			if v.Kind != "diverged" && v.Kind != "panic" {
				t.Errorf("seed %d finds %v, want logs that differ, or raft's panic about them", seed, v)
			}
			return
		}
	}
	t.Error("no seed leads to different logs or to a panic")
}

// By design, raft sends some data before it is durable: see the table in
// docs/raft-durability.md. The test counts it, and fails if a new version of raft changes it.
func TestMessagesWithVolatileData(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector, which finds nothing in one goroutine")
	}
	type words struct{ term, entry, commit bool }
	asItIs := map[raftpb.MessageType]words{
		raftpb.MsgProp:          {},
		raftpb.MsgApp:           {term: true, entry: true, commit: true},
		raftpb.MsgAppResp:       {},
		raftpb.MsgVote:          {term: true, entry: true},
		raftpb.MsgVoteResp:      {},
		raftpb.MsgSnap:          {term: true, commit: true},
		raftpb.MsgHeartbeat:     {term: true, commit: true},
		raftpb.MsgHeartbeatResp: {term: true},
		raftpb.MsgTimeoutNow:    {term: true},
		raftpb.MsgReadIndex:     {},
		raftpb.MsgReadIndexResp: {term: true, commit: true},
		raftpb.MsgPreVote:       {entry: true},
		raftpb.MsgPreVoteResp:   {},
	}
	held := map[raftpb.MessageType]words{
		raftpb.MsgApp:           {entry: true, commit: true},
		raftpb.MsgVote:          {},
		raftpb.MsgSnap:          {commit: true},
		raftpb.MsgHeartbeat:     {commit: true},
		raftpb.MsgTimeoutNow:    {},
		raftpb.MsgReadIndexResp: {commit: true},
	}
	for _, tc := range []struct {
		rules Rules
		want  map[raftpb.MessageType]words
	}{{Rules{CompactByRaft: true, OwnTermReads: true}, asItIs}, {AllRules(), held}} {
		said := &Said{}
		for seed := uint64(1); seed <= 30; seed++ {
			said.Add(&Run(t, Config{Seed: seed, Rules: tc.rules, Tolerate: "led twice"}).Said)
		}
		t.Logf("%+v\n%v", tc.rules, said)
		for kind, want := range tc.want {
			n := said[kind]
			got := words{n.Term > 0, n.Entry > 0, n.Commit > 0}
			// Whatever may be so need not happen in so few messages.
			if got.term && !want.term || got.entry && !want.entry || got.commit && !want.commit {
				t.Errorf("%+v: %v spoke of what was not durable: %+v in %d messages, want at most %+v", tc.rules, kind, got, n.Sent, want)
			}
		}
		if early := said[raftpb.MsgVote].Term > 0; early == tc.rules.HoldVotes {
			t.Errorf("%+v: MsgVote left before its term was durable: %v, want %v", tc.rules, early, !early)
		}
		if said[raftpb.MsgVoteResp].Sent == 0 || said[raftpb.MsgAppResp].Sent == 0 {
			t.Errorf("%+v: no votes or no appends were answered", tc.rules)
		}
	}
}
