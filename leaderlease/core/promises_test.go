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
	for _, s := range []struct{ about, data string }{
		{"a clock that missed time not reported", "\x00\x00K\x00\x1d\x00\x00\x00\x00\x00\x00\x9c\x00\xe0\x00p\x00>\x00\xf9\x00]\x00\x9f"},
		{"a clock that went back not reported", "\x0e\x00Q\x00\x1b\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x1e\x16Q\x1e\xda\x00\xe9\x00\x00\x0f\x00\xd1\x00\x00a@+"},
		{"an echo taken for a grant", "\x00\x00|\x00\x9b\x00\x00\x00\x00\x00\n\xdb\x00\xdd,\xd8\x00\x87\x00\v\x00\x13\x00\x00\x00\x00T\x00\x00\x00\x00\x00\x00\x00\xe5\x00\x8a\x00\x00\x00\x00\x00d\x00\x00\x00\x97\x00\x89"},
		{"half a restart hold", "Y\x00W\xef1\x00\x00\x00\x00\x00\xdc\x00\x00\x00\x00\x00\x00\x00/\x00\x7f\xda\xcf\x00\x00\x00\x00t\x00\xd2\x00\r\x00\xfc\x00x\x00\xb0C\x00*\x17\x00\x05J"},
		{"measured from the arrival of the answer", "\xd3\x00\xed\x00w\x00\x00\x00\x00\x00\x00\x00\x00$j\x00\x00\x00\xee\x00\xba\x00\x00\xabo\xf5\x00\xee"},
		{"nine tenths of the margin", "\x00\x00\xe1W\xc2\x00\xfa\x00\x9a\x00n\x00\x84M;\x006"},
		{"only the incoming half of a joint configuration", "\x00\x00\x9a\xc5\x00\x00\x00\x00\x00\x00\x00\x82\x00L\x00\xf0\x00X\x00\x00\x00O\x94\x00,\x00\x00\x91\x00\x00%\xa6\xa2\x00*\x00\x00\x00\x0e\x15\x00\xf5\x00p\x00\xe0\x1f\x0f\x00>\x00ߝ!\x00X\x00\x8d͕\x00\x89\x00u\x00\x00\x00\x94\x00\xdf͏"},
		{"the guard not asked", "\x00\x00䭉\x00\x00\x00\x00\x00\x00\x83\x00j"},
		{"the guard not told the term", "\xd3\x00\xed\x00w\x00\x00\x00\x00\x00\x00\x00\x00$j\x00\x00\x00\xee\x00\xba\x00\x00\xabo\xf5\x00\xee"},
		{"the lease kept in a transfer", "\x7f\x00t\xe1\xc6\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00S\xa3\x15\x00\xb8\x00\x9a"},
		{"the lease not told to step down", ";\x00\x98\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00$\x00\x14\x00\xbf\x00\x00\x00\xb4F\x00\xff\x00g\x90\x00&\xfa"},
		{"the margin removed", "L\x00X\x00N\x00\x9e\x00\x00F\x004\x00\x00\r\x00\xee\x00\xb9\x00\xff\x00\r\x00g-"},
		{"the restart hold removed", "Y\x00W\xef1\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00/\x00\x7f\xda\xcf\x00\x00\x00\x00t\x00\xd2\x00\r\x00\xfc\x00x\x00\xb0C\x00*\x17"},
		{"voters not updated", "\x00\x00Y\xf5\x00\x00\x00\x00\x00\x00\x00\x1e\x00\xe8\x00w\x99\xca\x00\xb5\x00\xcc\x00W\x00\xd6\x00\x00\xf4J\x00\x05w\xb7\x00\x9e\x00\xd5\x00\xa3\xf3\xb3\x00\xd2\x00\xe9\x00\xfd\x00\n\x00\x96F"},
	} {
		f.Add([]byte(s.data))
	}
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

// Each duty of the caller matters: its neglect is found.
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
