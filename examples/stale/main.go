// Command stale cuts a leader off, again and again, and counts the reads that
// are out of date: once with raft's own ReadOnlyLeaseBased, once with
// leaderlease. Everything runs in virtual time, on real RawNodes.
//
// It exits with 1 if leaderlease serves a stale read, or serves too few reads under
// its lease for a fair comparison.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/leaderlease/go/internal/stale"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

func main() {
	trials := flag.Int("trials", 500, "how often to cut a leader off")
	seed := flag.Uint64("seed", 1, "seed of when it happens")
	flag.Parse()

	fmt.Printf("%d times: 3 nodes, election timeout 1 s; the leader is cut off, the others elect and write,\n", *trials)
	fmt.Println("and a client that can still reach the old leader reads from it every 10 ms.")
	fmt.Println("Time is virtual: hours of it pass in seconds.")
	fmt.Println()
	stock := stale.Run(leasetest.Stock, *trials, *seed)
	ours := stale.Run(leasetest.Library, *trials, *seed)

	fmt.Println("                        runs with stale reads   stale reads   reads at that leader   mean stale window")
	show("raft ReadOnlyLeaseBased", &stock)
	show("leaderlease", &ours)

	if ours.Stale > 0 {
		fmt.Println("\nFAIL: leaderlease served a stale read")
		os.Exit(1)
	}
	if ours.Reads < stale.LeastReads**trials {
		fmt.Printf("\nFAIL: leaderlease served only %d reads\n", ours.Reads)
		os.Exit(1)
	}
}

func show(name string, t *stale.Tally) {
	fmt.Printf("%-24s%14d %%%20d%20d%22s\n", name, 100*t.StaleTrials/max(t.Trials, 1), t.Stale, t.Reads, t.MeanWindow())
}
