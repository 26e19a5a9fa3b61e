package sim

import (
	"slices"
	"testing"

	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Every kind of event occurs, and every received message has a matching send.
func TestTracesTellOfEverything(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 4
	}
	var kinds [leasetrace.NumKinds]int
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(t, Config{Seed: seed, Trace: true, Amend: func(s *Schedule) {
			s.Swarm.Plain = 0
			s.AddDeathNotices()
		}})
		r.Require(t)
		v := leasetrace.Judge(r.Traces)
		for k, n := range v.Kinds {
			kinds[k] += n
		}
		if v.Unmatched > 0 {
			t.Errorf("seed %d: %d messages have no matching send", seed, v.Unmatched)
		}
		if seed == 1 {
			refusesEachFalseDecision(t, r.Traces)
		}
	}
	never := map[leasetrace.Kind]string{
		leasetrace.KindNone:     "it is no event",
		leasetrace.KindDisabled: "no member turns leases off",
	}
	for k, n := range kinds {
		if k == int(leasetrace.KindInvalidate) || k == int(leasetrace.KindClose) {
			continue // some seeds have it
		}
		if _, none := never[leasetrace.Kind(k)]; (n == 0) != none {
			t.Errorf("%d events of kind %v in %d seeds: %s", n, leasetrace.Kind(k), seeds, never[leasetrace.Kind(k)])
		}
	}
}

// refusesEachFalseDecision turns one decision of each kind around, somewhere in the
// middle of the run, and wants it to be refused.
func refusesEachFalseDecision(t *testing.T, all []leasetrace.Process) {
	t.Helper()
	for _, k := range []leasetrace.Kind{
		leasetrace.KindPromise, leasetrace.KindCount, leasetrace.KindRequest, leasetrace.KindCandidacy,
		leasetrace.KindVoteOut, leasetrace.KindHeld, leasetrace.KindConfPending,
	} {
		told := slices.Clone(all)
		for p := range slices.Backward(told) {
			events := slices.Clone(told[p].Events)
			i := slices.IndexFunc(events, func(e leasetrace.Event) bool {
				return e.Kind == k
			})
			if i < 0 {
				continue
			}
			events[i].OK = !events[i].OK
			told[p].Events = events
			if v := leasetrace.Judge(told); v.Refused == nil {
				t.Errorf("a %v was turned around, and is not refused: %v", k, told[p].Events[i])
			}
			break
		}
	}
}
