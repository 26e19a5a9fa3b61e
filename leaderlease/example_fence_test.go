package leaderlease_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/leaderlease/go/leaderlease/fence"
)

// A lease cannot protect a resource outside the group: its holder may be paused
// between the check and the write. A fencing token can, if the resource checks
// it.
func ExampleLease_Token() {
	group := startGroup()
	defer group.stop()
	var gate fence.Gate // at the resource
	write := func(by *member, token fence.Token) {
		err := gate.Do(token, func() error {
			fmt.Printf("node %d writes\n", by.id)
			return nil
		})
		if errors.Is(err, fence.ErrStale) {
			fmt.Printf("node %d is refused: another holder came after it\n", by.id)
		}
	}

	// Node 1 leads, takes its token, writes, and is then paused.
	node1 := group.elect(1)
	token1, err := node1.lease.Token()
	if err != nil {
		log.Fatal(err)
	}
	write(node1, token1)

	// Meanwhile node 2 takes over.
	node2 := group.members[2]
	group.transfer(node1, node2)
	token2, err := node2.lease.Token()
	if err != nil {
		log.Fatal(err)
	}
	write(node2, token2)

	// Node 1 wakes up and goes on as if nothing had happened.
	write(node1, token1)

	// Output:
	// node 1 writes
	// node 2 writes
	// node 1 is refused: another holder came after it
}
