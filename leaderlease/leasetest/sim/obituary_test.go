package sim

import "testing"

// Death notices break no rule: at once, late, twice or never, and of leading or of earlier
// processes. Some of them void promises.
func TestDeathNotices(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(24); seed++ {
		r := Run(t, Config{Seed: seed, Trace: seed%2 == 0, Amend: (*Schedule).AddDeathNotices})
		r.Require(t)
		sum.Add(r)
	}
	s := &sum.Stats
	if s.VoidedPromises == 0 || s.Obituaries < 2*s.VoidedPromises || sum.AllLeaseReads() == 0 {
		t.Errorf("%d promises void by %d death notices, %d reads under a lease, want some of each, and twice as many notices as void promises",
			s.VoidedPromises, s.Obituaries, sum.AllLeaseReads())
	}
	t.Logf("%d promises void by %d death notices, %d elections", s.VoidedPromises, s.Obituaries, sum.Elections)
}
