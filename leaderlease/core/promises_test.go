package core

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// scriptOf returns the script of a seed.
func scriptOf(seed uint64) []byte {
	script := make([]byte, 3000)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range script {
		script[i] = byte(rng.Uint32())
	}
	return script
}

// play runs a script and fails with the run's story.
func play(t *testing.T, script []byte, f flaw) *model {
	t.Helper()
	m := newModel(script, f)
	m.run()
	if m.violation != "" {
		t.Errorf("%s, with %s\n%s", m.violation, flawNames[f], strings.Join(m.trace, "\n"))
	}
	return m
}

// FuzzLeaseNeverOutlivesPromises: whenever a candidate could collect the votes
// of a quorum, no view of an older term passes Check by its own clock, and no
// clock that keeps within the bound is doubted.
func FuzzLeaseNeverOutlivesPromises(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) { play(t, script, sound) })
}

// The same over fixed seeds, which must also have met every situation that
// decides something.
func TestLeaseNeverOutlivesPromises(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 300
	}
	var seen [numSights]int
	for seed := range seeds {
		m := play(t, scriptOf(seed), sound)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		for s, n := range m.seen {
			seen[s] += n
		}
	}
	for s, n := range seen {
		t.Logf("%s: %d", sightNames[s], n)
		if n < int(seeds)/20 {
			t.Errorf("%s: %d times in %d runs, want it often", sightNames[s], n, seeds)
		}
	}
}

// Each duty of the caller matters: whoever neglects it is found out.
func TestNeglectedDutiesAreFound(t *testing.T) {
	const seeds = 1000
	for f := sound + 1; f < numFlaws; f++ {
		t.Run(flawNames[f], func(t *testing.T) {
			for seed := range uint64(seeds) {
				m := newModel(scriptOf(seed), f)
				m.run()
				if m.violation != "" {
					t.Logf("seed %d: %s", seed, m.violation)
					return
				}
			}
			t.Errorf("no violation in %d seeds with %s", seeds, flawNames[f])
		})
	}
}

// flaw is one way not to do what doc.go asks of the caller.
type flaw int

const (
	sound flaw = iota
	marginRemoved
	marginTooThin
	holdRemoved
	holdTooShort
	guardNotAsked
	releaseUntold
	votersUntold
	incomingHalfOnly
	measuredFromArrival
	termUntold
	stepDownUntold
	clockUntold
	suspendUntold
	jumpUntold
	echoed
	numFlaws = iota
)

var flawNames = [numFlaws]string{
	sound:               "sound",
	marginRemoved:       "the margin removed",
	marginTooThin:       "nine tenths of the margin",
	holdRemoved:         "the restart hold removed",
	holdTooShort:        "half a restart hold",
	guardNotAsked:       "the guard not asked",
	releaseUntold:       "the lease kept in a transfer",
	votersUntold:        "voters not updated",
	incomingHalfOnly:    "only the incoming half of a joint configuration",
	measuredFromArrival: "measured from the arrival of the answer",
	termUntold:          "the guard not told the term",
	stepDownUntold:      "the lease not told to step down",
	clockUntold:         "a clock that went back not reported",
	suspendUntold:       "a clock that missed time not reported",
	jumpUntold:          "a clock that jumped ahead not reported",
	echoed:              "an echo taken for a grant",
}

func (f flaw) margin(d time.Duration) time.Duration {
	switch f {
	case marginRemoved:
		return 0
	case marginTooThin:
		return d * 9 / 10
	default:
		return d
	}
}

func (f flaw) hold(d time.Duration) time.Duration {
	switch f {
	case holdRemoved:
		return 0
	case holdTooShort:
		return d / 2
	default:
		return d
	}
}

// sight is something that must have been seen, or the runs prove little.
type sight int

const (
	election sight = iota
	renewal
	leaseHeld    // a view passed its check
	readInMargin // a view would have passed but for the margin
	voteWithheld
	transferWon
	reconfigured
	heldBack // a node was bound by its restart alone
	overtaken
	numSights = iota
)

var sightNames = [numSights]string{
	"election", "renewal", "lease held", "read in the margin", "vote withheld",
	"transfer won", "reconfigured", "held back", "overtaken",
}
