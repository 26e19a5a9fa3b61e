package leasetest

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"testing"
	"time"
)

var (
	scriptFile    = flag.String("script", "", "the script that TestScript plays")
	exploreRules  = flag.Bool("explore.rules", true, "judge V3 and V4 by themselves, too, and not by the claim only")
	exploreDeeper = flag.Int("explore.deeper", 0, "take so many steps more in each search than it wants")
	explorePlays  = flag.Int("explore.plays", math.MaxInt, "play so many scripts in each search")
	exploreScript = flag.String("explore.script", "", "write the script that goes wrong, if one is found, to this file")
	exploreOnly   = flag.String("explore.only", "", "the search to make, by its name, instead of all")
)

// TestExplore plays every script of a few steps on the real Lease and the real raft. No
// script may break a rule, and each search must reach its goals.
func TestExplore(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var goals uint64
	states, plays := 0, 0
	for i := range menus {
		m := &menus[i]
		if *exploreOnly != "" && m.name != *exploreOnly {
			continue
		}
		w := newWalk(t, m)
		depth := m.depth + *exploreDeeper
		if shortened() {
			depth = 1
		}
		w.search(depth, *explorePlays)
		t.Logf("%s", w.report())
		if w.bad != "" {
			w.tell()
		}
		states, plays, goals = states+w.states, plays+w.plays, goals|w.goals
		for _, g := range m.never {
			if w.goals&(1<<g) != 0 {
				t.Errorf("GOAL %q in %s, where it must not be", goalNames[g], m.name)
			}
		}
		for _, g := range m.goals {
			if w.goals&(1<<g) == 0 && !shortened() {
				t.Errorf("GOAL %q in %s", goalNames[g], m.name)
			}
		}
	}
	t.Logf("%d states, %d plays", states, plays)
	if missing := uint64(1<<numGoals-1) &^ goals; *exploreOnly == "" && !shortened() && missing != 0 {
		t.Errorf("goals %b are in no search", missing)
	}
}

// shortened reports whether searches are too short to reach every goal.
func shortened() bool { return testing.Short() }

// tell ends the test with the script that goes wrong.
func (w *walk) tell() {
	w.t.Helper()
	script := w.script(w.path)
	if *exploreScript != "" {
		if err := os.WriteFile(*exploreScript, []byte(script), 0o600); err != nil {
			w.t.Error(err)
		}
	}
	w.t.Fatalf("COUNTEREXAMPLE search=%s depth=%d states=%d\n%s\n\n%s", w.m.name, len(w.path), w.states, w.bad, script)
}

// report is one line of what make explore prints.
func (w *walk) report() string {
	end := ""
	if !w.complete {
		end = " and some longer ones"
	}
	perSecond := float64(w.plays) / max(w.took.Seconds(), 1e-9)
	return fmt.Sprintf("%-18s %2d steps to choose from, all scripts of %d%s: %d states, %d plays; %v, %.0f plays/s",
		w.m.name, len(w.menu), w.depth, end, w.states, w.plays, w.took.Round(10*time.Millisecond), perSecond)
}
