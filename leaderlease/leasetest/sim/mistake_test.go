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

// Sending rd.Messages of a copy that was made before Ready was called was once the
// worst mistake: the lease looked valid, and votes leaked that promises forbid. Now
// it is no mistake: everything is judged as of nodes that make none.
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

// A node on which Ready is not called, or sees what nobody sends, has no lease and
// gives no promise out. Nor does it break what an earlier process of it promised,
// whose program was right: nodes change between both at each restart.
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
