package ttl

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// orders calls f with begin followed by each sequence of up to n steps.
func orders(begin plan, steps string, n int, f func(plan)) {
	if testing.Short() {
		n = (n + 1) / 2
	}
	inOrder(begin, steps, n, f)
}

func inOrder(begin plan, steps string, n int, f func(plan)) {
	f(begin)
	if n == 0 {
		return
	}
	for _, s := range steps {
		inOrder(begin+plan(s), steps, n-1, f)
	}
}

// holds runs plans, and reports the first ones that fail.
func holds(t *testing.T, version int64, all func(check func(plan))) {
	t.Helper()
	ran, failed := 0, 0
	all(func(p plan) {
		ran++
		if err := p.run(t, version); err != nil {
			if failed++; failed <= 3 {
				t.Errorf("plan %s: %v", p, err)
			}
		}
	})
	if failed > 0 {
		t.Errorf("%d of %d plans fail", failed, ran)
	}
}

// A lease that is granted again under the same ID is a new one, whatever is under way for the old
// one: a client's revocation, an expiry that succeeds, is lost, in doubt or slow, a keep-alive, a
// TimeToLive, or a change of the leader.
func TestAnIDIsGrantedAgainInAllOrders(t *testing.T) {
	holds(t, store.ClusterVersionGenerations, func(check func(plan)) {
		for _, begin := range []plan{"ga", "dga", "uga", "wga", "ga1k", "ga3l", "ga1n", "4k"} {
			orders(begin, "rGakt", 4, check)
		}
		for _, begin := range []plan{"Ga", "uGa", "wGa"} {
			orders(begin, "rGTnk", 4, check)
		}
	})
}

// A lease checkpoint never shortens the time that a keep-alive promised, whichever leader wrote it,
// and whatever members have applied.
func TestCheckpointsAreTakenBackInAllOrders(t *testing.T) {
	holds(t, store.ClusterVersionGenerations, func(check func(plan)) {
		for _, begin := range []plan{"Ga", "Gau", "Gaw", "Gacu", "Gacw"} {
			orders(begin, "Tknb", 2, func(p plan) {
				orders(p+"o", "Tkn", 3, check)
				orders(p+"d", "Tkn", 3, check)
			})
		}
	})
}

// With members of older versions, a revocation names an ID only. A failed one is not repeated for a
// lease that was granted since.
func TestAnIDIsGrantedAgainInAMixedCluster(t *testing.T) {
	holds(t, store.ClusterVersionFirst, func(check func(plan)) {
		for _, again := range []plan{"raGa", "raga"} {
			for _, begin := range []plan{"ga", "gad", "ga1k", "ga3l", "ga1n"} {
				orders(begin, "tk", 2, func(p plan) {
					orders(p+again, "tko", 3, check)
				})
			}
		}
	})
}

// Without leader leases, a quorum round precedes each revocation. Meanwhile the ID may be granted
// again, and the cluster version raised. What the store has after the round is not revoked, and an earlier
// leader's checkpoint of it does not count.
func TestAnIDIsGrantedAgainWithoutLeaderLeases(t *testing.T) {
	for _, version := range []int64{store.ClusterVersionFirst, store.ClusterVersionGenerations} {
		holds(t, version, func(check func(plan)) {
			for _, begin := range []plan{"Dga5", "Dga6", "Dga7", "DGa5", "DGa6", "Dgaf5"} {
				orders(begin, "tTknf", 4, check)
			}
		})
	}
}

// TestTheEngineKeepsItsPromises tries longer plans.
func TestTheEngineKeepsItsPromises(t *testing.T) {
	stories := rapid.SampledFrom([]string{"gGrabkl1234nNstToduwcC", "GTknbouwd", "gGrkatuwo"})
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.SampledFrom([]rune(stories.Draw(rt, "story"))), 1, 25).Draw(rt, "steps")
		if err := plan(steps).run(t, store.ClusterVersionGenerations); err != nil {
			rt.Fatalf("plan %s: %v", string(steps), err)
		}
	})
}
