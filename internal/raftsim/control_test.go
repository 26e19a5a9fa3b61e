package raftsim

import (
	"strings"
	"testing"
)

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
