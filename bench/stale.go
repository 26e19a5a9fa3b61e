package bench

import (
	"math/rand/v2"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// staleTally counts the reads of a run of trials.
type staleTally struct {
	Trials, StaleTrials int
	// Reads are those that the old leader has served.
	Reads, Stale int
	// Window is the time in which stale reads were served, summed.
	Window time.Duration
}

// meanWindow returns how long the old leader served stale reads, on average over
// the trials in which it did.
func (t *staleTally) meanWindow() time.Duration {
	if t.StaleTrials == 0 {
		return 0
	}
	return (t.Window / time.Duration(t.StaleTrials)).Round(time.Millisecond)
}

// The timing of a trial, in virtual time.
const (
	lull      = 2 * time.Second // from the election on, and up to a second more
	partition = 5 * time.Second
	readEvery = 10 * time.Millisecond
)

// cutLeadersOff cuts a leader off, again and again, and counts the reads that are out of date, in virtual time, on
// real RawNodes of a kind. The seed decides when each leader is cut off; raft draws its election timeouts by itself.
func cutLeadersOff(kind leasetest.Kind, trials int, seed uint64) staleTally {
	rng := rand.New(rand.NewPCG(seed, 0))
	var t staleTally
	for range trials {
		t.trial(kind, time.Duration(rng.Int64N(int64(time.Second))))
	}
	return t
}

// trial cuts the leader off at the given time after its election.
func (t *staleTally) trial(kind leasetest.Kind, at time.Duration) {
	c := leasetest.New(leasetest.Options{
		Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Kind: kind} },
	})
	const key, write = 1, 1
	c.Elect(1)
	old := c.Node(1)
	c.Run(lull + at)
	c.Net.Split([]uint64{1}, []uint64{2, 3})

	var newest uint64 // the version that a completed write has made
	var first, last time.Duration
	end := c.Now() + partition
	for wrote := false; c.Now() < end; c.Run(readEvery) {
		if leader := c.Leader(); leader != old && leader != nil && !wrote {
			wrote = true
			leader.Write(key, write, func(version uint64) { newest = version })
		}
		invoked, floor := c.Now(), newest
		old.Read(key, func(version uint64, _ leaderlease.Path, err error) {
			if err != nil {
				return
			}
			t.Reads++
			if version < floor {
				t.Stale++
				if first == 0 {
					first = invoked
				}
				last = invoked
			}
		})
	}
	t.Trials++
	if first > 0 {
		t.StaleTrials++
		t.Window += last - first
	}
}
