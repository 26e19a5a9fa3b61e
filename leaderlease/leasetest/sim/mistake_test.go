package sim

import (
	"testing"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

func mistakeSeeds(all uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return all
}

// Sending rd.Messages of a copy that was made before the call of Ready was once the worst
// mistake: the lease looked valid, and forbidden votes leaked. Now it is harmless, and all
// oracles apply.
func TestSendingACopyOfTheReadyIsHarmless(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(8); seed++ {
		r := Run(t, Config{Seed: seed, Node: func(_ uint64, o *leasetest.NodeOptions) {
			o.Mistake = func(int) leasetest.Mistake { return leasetest.SendsCopy }
		}})
		r.Require(t)
		sum.Add(r)
	}
	if sum.AllLeaseReads() == 0 {
		t.Error("no read under a lease")
	}
}

// A node that does not call Ready, or calls it with clones, has no lease and makes no promise.
// Nor does it break the promise of its earlier process, which embedded the Lease correctly:
// nodes alternate at each restart.
func TestMistakesWithReadyMakeNoReadStale(t *testing.T) {
	skipShort(t)
	for name, m := range map[string]leasetest.Mistake{"never": leasetest.NeverReady, "clones": leasetest.SendsClones, "late": leasetest.ReadyTooLate} {
		t.Run(name, func(t *testing.T) {
			sum := &Result{}
			for seed := uint64(1); seed <= mistakeSeeds(4); seed++ {
				for first := range 2 {
					changes := 0
					r := Run(t, Config{Seed: seed, SkipGuard: true, Misused: true, Node: func(id uint64, o *leasetest.NodeOptions) {
						o.Mistake = everySecond(m, first+int(id), &changes)
					}})
					r.Require(t)
					sum.Add(r)
					if changes == 0 {
						t.Errorf("seed %d: no node has changed between right and wrong in %d crashes", seed, r.Crashes)
					}
				}
			}
			if sum.Elections == 0 || sum.Reads[leaderlease.PathLease] == 0 {
				t.Errorf("%d elections, %d reads under a lease, want some of both", sum.Elections, sum.Reads[leaderlease.PathLease])
			}
		})
	}
}

// everySecond lets every second process of a node make m, and counts how often the
// node changes.
func everySecond(m leasetest.Mistake, first int, changes *int) func(process int) leasetest.Mistake {
	var last leasetest.Mistake
	known := false
	return func(process int) leasetest.Mistake {
		now := m
		if (process+first)%2 == 0 {
			now = leasetest.NoMistake
		}
		if known && now != last {
			*changes++
		}
		last, known = now, true
		return now
	}
}
