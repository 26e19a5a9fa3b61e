// Command stale cuts a leader off, again and again, and counts the reads that
// are out of date: once with raft's own ReadOnlyLeaseBased, once with
// leaderlease. Everything runs in virtual time, on real RawNodes.
//
// It exits with 1 if leaderlease serves a stale read, or serves too few under
// its lease to make that a feat.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// tally is what a run of trials has seen.
type tally struct {
	trials, staleTrials int
	reads, stale        int
	window              time.Duration // in which stale reads were served, summed
}

func main() {
	trials := flag.Int("trials", 500, "how often to cut a leader off")
	seed := flag.Uint64("seed", 1, "seed of when it happens")
	flag.Parse()

	fmt.Printf("%d times: 3 nodes, election timeout 1 s; the leader is cut off, the others elect and write,\n", *trials)
	fmt.Println("and a client that can still reach the old leader reads from it every 10 ms.")
	fmt.Println()
	stock := run(leasetest.Stock, *trials, *seed)
	ours := run(leasetest.Library, *trials, *seed)

	fmt.Println("                        runs with stale reads   stale reads   reads at that leader   mean stale window")
	stock.print("raft ReadOnlyLeaseBased")
	ours.print("leaderlease")

	if ours.stale > 0 {
		fmt.Println("\nFAIL: leaderlease served a stale read")
		os.Exit(1)
	}
	if ours.reads < 50**trials {
		fmt.Printf("\nFAIL: leaderlease served only %d reads\n", ours.reads)
		os.Exit(1)
	}
}

func run(kind leasetest.Kind, trials int, seed uint64) tally {
	rng := rand.New(rand.NewPCG(seed, 0))
	var t tally
	for range trials {
		t.trial(kind, time.Duration(rng.Int64N(int64(time.Second))))
	}
	return t
}

// trial cuts the leader off at the given moment of its reign.
func (t *tally) trial(kind leasetest.Kind, at time.Duration) {
	c := leasetest.New(leasetest.Options{
		Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Kind: kind} },
	})
	const key, write = 1, 1
	c.Elect(1)
	old := c.Node(1)
	c.Run(2*time.Second + at)
	c.Net.Split([]uint64{1}, []uint64{2, 3})

	var newest uint64 // the version that a completed write has made
	var first, last time.Duration
	end := c.Now() + 5*time.Second
	for wrote := false; c.Now() < end; c.Run(10 * time.Millisecond) {
		if leader := c.Leader(); leader != old && leader != nil && !wrote {
			wrote = true
			leader.Write(key, write, func(version uint64) { newest = version })
		}
		invoked, floor := c.Now(), newest
		old.Read(key, func(version uint64, _ leaderlease.Path, err error) {
			if err != nil {
				return
			}
			t.reads++
			if version < floor {
				t.stale++
				if first == 0 {
					first = invoked
				}
				last = invoked
			}
		})
	}
	t.trials++
	if first > 0 {
		t.staleTrials++
		t.window += last - first
	}
}

func (t *tally) print(name string) {
	var mean time.Duration
	if t.staleTrials > 0 {
		mean = (t.window / time.Duration(t.staleTrials)).Round(time.Millisecond)
	}
	fmt.Printf("%-24s%14d %%%20d%20d%22s\n", name, 100*t.staleTrials/t.trials, t.stale, t.reads, mean)
}
