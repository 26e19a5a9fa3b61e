package core

import (
	"math/rand/v2"
	"strings"
	"testing"
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
