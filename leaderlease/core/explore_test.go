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
// another node has won a later term, and what must be possible is seen.
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
	return fmt.Sprintf("%d nodes %s, D=%d skew=%d transfer=%d, terms<=%d, under way<=%d, crashes=%d transfers=%d jumps=%d back=%d changes=%d resigns=%d deaths=%d",
		b.nodes, start, b.d, b.skew, b.transfer, b.terms, b.letters,
		b.budget.crashes, b.budget.transfers, b.budget.jumps, b.budget.backs, b.budget.changes, b.budget.resigns, b.budget.deaths)
}

// TestExploreFindsBlunders is the control: a caller that breaks a rule of doc.go is
// found out, in the search that is named for it. For two, another rule stands in.
func TestExploreFindsBlunders(t *testing.T) {
	for f, in := range [numBlunders]string{
		voteBeforeDurable: "orders", ownCampaignFree: "settled", guardNotHeard: "settled", noHold: "settled", halfHold: "settled",
		leaseKept: "settled", termNotEnded: "settled", fromArrival: "settled", echo: "settled", votersNotTold: "growing",
		termNotTold: "", pendingNotTold: "", followerResigns: "resigns", resignedLeads: "resigns", livingReportedDead: "dies",
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

// goal is something that must have been seen, or a search proves little.
type goal int

const (
	goalLease         goal = iota // a view passed its check
	goalMargin                    // a view would have passed but for the margin
	goalSecond                    // a second leader has a lease
	goalOvertaken                 // a lease has run out, and a later term is won
	goalRenewed                   // a grant has moved the end
	goalBound                     // a promise has kept a vote away
	goalHeld                      // a restart hold has
	goalReleased                  // a release has voided a promise that had not ended
	goalHandedOver                // a transfer has succeeded
	goalAborted                   // a leader has a lease again after a transfer
	goalJoint                     // a joint configuration is proposed
	goalReconfigured              // a leader has applied a configuration
	goalFreed                     // a voter votes whose promise has ended
	goalHeldGrants                // a held node makes a promise
	goalReleasedOlder             // the same for a promise to an earlier leader
	goalLateProbe                 // a probe that a release covers comes late, and gets no promise
	goalSole                      // a sole voter needs no other voter
	goalRaised                    // a promise is made that is longer than the shortest saved
	goalLowered                   // what is saved falls again
	goalLong                      // a lease is held for as long as it can be
	goalLaterTerm                 // a voter makes the leader whom it knows a promise in a later term
	goalResigned                  // the leader after one that has resigned, and lives on
	goalVoided                    // a death has voided a promise that had not ended
	goalFormer                    // one has not: the promise is to the next process
	goalTwice                     // a node has won a term twice
	numGoals
)

var goalNames = [numGoals]string{
	"a lease is held", "a read in the margin is refused", "a second leader has a lease", "a lease has run out when a later term is won",
	"a lease is renewed", "a promise keeps a vote away", "a restart hold keeps a vote away", "a release voids a promise",
	"a transfer succeeds", "a lease is held again after a transfer",
	"a joint configuration is proposed", "a leader applies a configuration", "a voter votes when its promise has ended", "a held node makes a promise",
	"a release voids a promise to an earlier leader", "a late probe gets no promise", "a sole voter has a lease",
	"a longer promise is made than was saved", "what is saved falls",
	"a lease lasts as long as it may", "a promise to a leader that leads again", "a leader that resigns is replaced",
	"a death voids a promise", "a death of a former process voids none", "a node wins one term twice",
}

func (s *stage) reach(g goal) { s.marks |= 1 << g }

// blunder is a way not to do what doc.go asks of the caller. At this level two of them
// are harmless: raft itself does not answer the heartbeats of a deposed leader
// (termNotTold), and it switches to a configuration when the lease does
// (pendingNotTold).
type blunder int

const (
	faultless blunder = iota
	voteBeforeDurable
	guardNotHeard
	ownCampaignFree
	noHold
	halfHold
	leaseKept
	termNotEnded
	termNotTold
	fromArrival
	echo
	votersNotTold
	pendingNotTold
	followerResigns
	resignedLeads
	livingReportedDead
	numBlunders
)

var blunderNames = [numBlunders]string{
	"none", "V9: MsgVote leaves before its term is durable", "V3: the guard is not heeded", "V4: a bound node's requests leave",
	"V6: no restart hold", "V6: half a restart hold", "L6: the lease is kept in a transfer", "L7: the leadership is not ended",
	"V1: the guard is not told the term", "L2: measured from the arrival of the answer", "V2: an echo is a grant",
	"L5: the lease is not told its voters", "L5: the lease is not told of a pending change",
	"L6b: a follower resigns for its node's term", "L6b: a leader that resigns keeps its lease",
	"V8: a death of a process that lives",
}

// searches are what is explored. Each has some kinds of trouble and leaves out
// others, or none would come far.
var searches = []bounds{
	{
		name: "settled", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{crashes: 1, transfers: 1}, limits: explore.Limits{States: 110_000},
	},
	{
		name: "fresh", nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{crashes: 1, transfers: 1}, limits: explore.Limits{States: 50_000},
	},
	{
		// What needs no time to pass: MsgVote before its term is durable, for one.
		name: "orders", still: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{crashes: 1, transfers: 1}, limits: explore.Limits{States: 120_000},
	},
	{
		name: "letters", settled: true, nodes: 3, d: 3, skew: 1, transfer: 1, terms: 3, letters: 2,
		budget: budget{transfers: 1}, boundCampaigns: true, limits: explore.Limits{States: 125_000},
	},
	{
		// Leaders resign, and live on or crash; the word comes late, and twice.
		name: "resigns", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		budget: budget{crashes: 1, resigns: 1}, limits: explore.Limits{States: 100_000},
	},
	{
		// Leaders die, and others hear of it at once or late, one after the other.
		name: "dies", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		budget: budget{crashes: 1, deaths: 2}, limits: explore.Limits{States: 60_000},
	},
	{
		// A dead process's node leads again, as another process, when the death is reported.
		name: "lives", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		opening: []explore.Step{
			{Kind: uint8(doCrash), A: 0},
			{Kind: uint8(doPass)},
			{Kind: uint8(doPass)},
			{Kind: uint8(doStand), A: 0},
			{Kind: uint8(doVote), A: 0, B: 1},
		},
		budget: budget{crashes: 2, deaths: 2}, limits: explore.Limits{States: 60_000},
	},
	{
		name: "clocks", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{jumps: 1, backs: 1}, limits: explore.Limits{States: 100_000},
	},
	{
		name: "members", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2,
		budget: budget{changes: 2}, limits: explore.Limits{States: 100_000},
	},
	{
		name: "growing", settled: true, nodes: 3, learners: 2, d: 2, skew: 1, transfer: 1, terms: 2,
		budget: budget{changes: 2}, limits: explore.Limits{States: 80_000},
	},
	{
		name: "terms", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3,
		limits: explore.Limits{States: 100_000},
	},
	{
		name: "reigns", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 4, letters: 1,
		budget: budget{transfers: 1}, limits: explore.Limits{States: 60_000},
	},
	{
		// A former leader leads again, as another process with another clock.
		name: "again", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3,
		budget: budget{crashes: 1}, limits: explore.Limits{States: 350_000},
	},
	{
		// A former leader leads again, and lacks entries that were committed meanwhile.
		name: "heirs", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3,
		budget: budget{changes: 1}, limits: explore.Limits{States: 30_000},
	},
	{
		name: "late", settled: true, late: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		limits: explore.Limits{States: 60_000},
	},
	{
		name: "five", settled: true, nodes: 5, d: 2, skew: 1, transfer: 1, terms: 2,
		limits: explore.Limits{States: 20_000},
	},
	{
		name: "learners", settled: true, nodes: 5, learners: 2, d: 2, skew: 1, transfer: 1, terms: 2,
		limits: explore.Limits{States: 20_000},
	},
	{
		name: "apart", settled: true, apart: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		limits: explore.Limits{States: 60_000},
	},
	{
		// Every other leader asks for more than is saved at first, and processes die while
		// what is saved rises.
		name: "raised", settled: true, nodes: 3, d: 2, floor: 1, saved: 1, skew: 1, transfer: 1, terms: 2,
		budget: budget{crashes: 1}, limits: explore.Limits{States: 100_000},
	},
	{
		// Likewise, while it falls.
		name: "lowered", settled: true, nodes: 3, d: 2, floor: 1, saved: 2, skew: 1, transfer: 1, terms: 2,
		budget: budget{crashes: 2}, limits: explore.Limits{States: 100_000},
	},
	{
		// Three durations. A leader has asked for more than the one before it, of which a probe is
		// still under way, and campaigns again; its voter has restarted in the
		// older term, and its clock has stepped back.
		name: "owing", settled: true, nodes: 3, d: 3, turns: [3]int{2, 3, 1}, floor: 1, saved: 3, skew: 1, transfer: 1, terms: 3, letters: 1,
		opening: []explore.Step{
			{Kind: uint8(doProbe), A: 0, B: 2},
			{Kind: uint8(doStand), A: 1},
			{Kind: uint8(doVote), A: 1, B: 0},
			{Kind: uint8(doRenew), A: 1, B: 2},
			{Kind: uint8(doCrash), A: 2},
			{Kind: uint8(doTick), A: 2},
			{Kind: uint8(doStepBack), A: 2},
			{Kind: uint8(doStand), A: 0},
		},
		budget: budget{crashes: 2, backs: 1}, limits: explore.Limits{States: 160_000},
	},
	{
		// Likewise, but the voter gets a memory from before its promise.
		name: "recalled", settled: true, nodes: 3, d: 3, turns: [3]int{2, 3, 1}, floor: 1, saved: 3, skew: 1, transfer: 1, terms: 3,
		opening: []explore.Step{
			{Kind: uint8(doStand), A: 1},
			{Kind: uint8(doVote), A: 1, B: 0},
			{Kind: uint8(doRenew), A: 1, B: 2},
			{Kind: uint8(doRecall), A: 2},
			{Kind: uint8(doStand), A: 0},
		},
		budget: budget{crashes: 1, jumps: 1}, limits: explore.Limits{States: 60_000},
	},
	{
		// A clock has jumped over the end of a promise.
		name: "jumped", settled: true, nodes: 3, d: 3, floor: 1, saved: 3, skew: 1, transfer: 1, terms: 2,
		opening: []explore.Step{
			{Kind: uint8(doRenew), A: 0, B: 2},
			{Kind: uint8(doJump), A: 2},
		},
		budget: budget{crashes: 1, jumps: 1}, limits: explore.Limits{States: 40_000},
	},
	{
		// A memory from before what was saved has fallen.
		name: "fallen", settled: true, nodes: 3, d: 3, turns: [3]int{2, 3, 1}, floor: 1, saved: 1, skew: 1, transfer: 1, terms: 2,
		opening: []explore.Step{
			{Kind: uint8(doRecall), A: 2},
		},
		budget: budget{crashes: 1, jumps: 1}, limits: explore.Limits{States: 20_000},
	},
	{
		// Leaders ask for more than any voter promises.
		name: "toolong", settled: true, nodes: 3, d: 2, longest: 1, skew: 1, transfer: 1, terms: 2,
		budget: budget{crashes: 1}, limits: explore.Limits{States: 90_000},
	},
}
