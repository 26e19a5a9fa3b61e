package core

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/internal/explore"
)

var (
	exploreStates = flag.Int("explore.states", 0, "look at so many states in each search, instead of a few")
	exploreTimes  = flag.Int("explore.times", 1, "look at so many times the usual number of states")
	exploreRules  = flag.Bool("explore.rules", true, "judge L2, L3 and V6 by themselves, too, and not by the claim only")
	exploreOnly   = flag.String("explore.only", "", "the search to make, by its name, instead of all")
)

// TestExplore looks at every schedule of a few steps. No view passes its check when
// somebody has won a later term, and what must be possible is seen.
func TestExplore(t *testing.T) {
	var fired [numActions]int
	var reached [numGoals]bool
	total := 0
	for i := range searches {
		b := searches[i]
		if *exploreOnly != "" && b.name != *exploreOnly {
			continue
		}
		b.limits.States *= *exploreTimes
		if *exploreStates > 0 {
			b.limits.States = *exploreStates
		} else if shortened() {
			b.limits.States /= 100
		}
		r := search(b)
		t.Logf("%s", report(&b, &r))
		if r.Bad > 0 {
			t.Fatalf("COUNTEREXAMPLE search=%s depth=%d states=%d\n%s", b.name, r.Bad, r.States, strings.Join(r.Trace, "\n"))
		}
		total += r.States
		for _, st := range b.opening {
			fired[st.Kind]++
		}
		for k := range fired {
			fired[k] += r.Fired[k]
		}
		for g := range reached {
			reached[g] = reached[g] || r.Reached[g] > 0
		}
	}
	t.Logf("%d states", total)
	if *exploreOnly == "" && !shortened() {
		checkCoverage(t, fired[:], reached[:])
	}
}

// shortened searches see too little to reach every goal.
func shortened() bool { return testing.Short() }

// search repeats a search that found something and cannot tell how it came about, with
// every node known by its name.
func search(b bounds) explore.Result {
	r := explore.Search(newStages(&b), b.limits)
	if r.Bad == 0 || r.Trace != nil {
		return r
	}
	b.named = true
	return explore.Search(newStages(&b), b.limits)
}

// checkCoverage fails the test if something was never seen, or nothing can be said of
// it; and if something was that must not be.
func checkCoverage(t *testing.T, fired []int, reached []bool) {
	t.Helper()
	for k, n := range fired {
		if n == 0 {
			t.Errorf("GOAL no step %q was ever taken", actionNames[k])
		}
	}
	for g, seen := range reached {
		if want := goal(g) != goalTwice; seen != want {
			t.Errorf("GOAL %q: seen %v, want %v", goalNames[g], seen, want)
		}
	}
}

// report is one line of what make explore prints.
func report(b *bounds, r *explore.Result) string {
	end := "not exhausted"
	if r.Exhausted {
		end = "exhausted"
	}
	perSecond := float64(r.States) / max(r.Elapsed.Seconds(), 1e-9)
	return fmt.Sprintf("%-10s %s: %d states, %d steps, all of depth %d, %s; %v, %.0f states/s, %d B/state kept",
		b.name, b, r.States, r.Steps, r.Depth, end, r.Elapsed.Round(10*time.Millisecond), perSecond, r.Bytes/max(r.States, 1))
}

// String says what the bounds are.
func (b *bounds) String() string {
	start := "from nothing"
	if b.settled {
		start = "from a settled leader"
	}
	return fmt.Sprintf("%d nodes %s, D=%d skew=%d transfer=%d, terms<=%d, under way<=%d, crashes=%d transfers=%d jumps=%d back=%d changes=%d resigns=%d obituaries=%d",
		b.nodes, start, b.d, b.skew, b.transfer, b.terms, b.letters,
		b.budget.crashes, b.budget.transfers, b.budget.jumps, b.budget.backs, b.budget.changes, b.budget.resigns, b.budget.obituaries)
}

// TestExploreFindsBlunders is the control: whoever does not do what doc.go asks is
// found out, in the search that is named for it. For two, another rule stands in.
func TestExploreFindsBlunders(t *testing.T) {
	for f, in := range [numBlunders]string{
		voteBeforeDurable: "orders", ownCampaignFree: "settled", guardNotHeard: "settled", noHold: "settled", halfHold: "settled",
		leaseKept: "settled", reignNotEnded: "settled", fromArrival: "settled", echo: "settled", votersNotTold: "growing",
		termNotTold: "", pendingNotTold: "", followerResigns: "resigns", resignedLeads: "resigns", livingBuried: "dies",
	} {
		slow := in != "settled" || blunder(f) == fromArrival
		if blunder(f) == faultless || in == "" || (testing.Short() && slow) {
			continue
		}
		t.Run(blunderNames[f], func(t *testing.T) {
			b := searches[slices.IndexFunc(searches, func(b bounds) bool { return b.name == in })]
			b.flaw, b.limits.States = blunder(f), 500_000
			r := search(b)
			if r.Bad == 0 {
				t.Fatalf("not found: %s", report(&b, &r))
			}
			t.Logf("found in %s at depth %d, %d states, %v\n%s", b.name, r.Bad, r.States, r.Elapsed, strings.Join(r.Trace, "\n"))
		})
	}
}
