package sim

import (
	"slices"
	"testing"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Every kind of event occurs, and every message that arrives was seen to be sent, but
// for those of members without the library.
func TestTracesTellOfEverything(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 4
	}
	var kinds [leaderlease.NumTraceKinds]int
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(t, Config{Seed: seed, Trace: true, Amend: func(s *Schedule) {
			s.Swarm.Plain = 0
			s.Mourn()
		}})
		r.Require(t)
		v := leasetrace.Judge(r.Traces)
		for k, n := range v.Kinds {
			kinds[k] += n
		}
		if v.Unmatched > 0 {
			t.Errorf("seed %d: %d messages were not seen to be sent", seed, v.Unmatched)
		}
		if seed == 1 {
			refusesEachFalseDecision(t, r.Traces)
		}
	}
	never := map[leaderlease.TraceKind]string{
		leaderlease.TraceNone:     "it is no event",
		leaderlease.TraceDisabled: "nobody turns leases off",
	}
	for k, n := range kinds {
		if k == int(leaderlease.TraceInvalidate) || k == int(leaderlease.TraceClose) {
			continue // some seeds have it
		}
		if _, none := never[leaderlease.TraceKind(k)]; (n == 0) != none {
			t.Errorf("%d events of kind %v in %d seeds: %s", n, leaderlease.TraceKind(k), seeds, never[leaderlease.TraceKind(k)])
		}
	}
}

// refusesEachFalseDecision turns one decision of each kind around, somewhere in the
// middle of the run, and wants it to be refused.
func refusesEachFalseDecision(t *testing.T, all []leasetrace.Process) {
	t.Helper()
	for _, k := range []leaderlease.TraceKind{
		leaderlease.TracePromise, leaderlease.TraceCount, leaderlease.TraceRequest, leaderlease.TraceCandidacy,
		leaderlease.TraceVoteOut, leaderlease.TraceHeld, leaderlease.TraceConfPending,
	} {
		told := slices.Clone(all)
		for p := range slices.Backward(told) {
			events := slices.Clone(told[p].Events)
			i := slices.IndexFunc(events, func(e leaderlease.TraceEvent) bool {
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
