package sim

import "testing"

// Deaths that are proven break no rule: told at once, late, twice or never, of processes that led
// and of former ones of whoever leads now. And they are of use.
func TestObituaries(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(24); seed++ {
		r := Run(t, Config{Seed: seed, Trace: seed%2 == 0, Amend: (*Schedule).Mourn})
		r.Require(t)
		sum.Add(r)
	}
	s := &sum.Stats
	if s.VoidedPromises == 0 || s.Deaths < 2*s.VoidedPromises || sum.AllLeaseReads() == 0 {
		t.Errorf("%d promises void by %d obituaries, %d reads under a lease, want some of each, and more obituaries than that",
			s.VoidedPromises, s.Deaths, sum.AllLeaseReads())
	}
	t.Logf("%d promises void by %d obituaries, %d elections", s.VoidedPromises, s.Deaths, sum.Elections)
}
