package leasetest_test

import (
	"fmt"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// A leader is cut off in virtual time: it serves until its lease ends, and another
// member leads only after that.
func Example() {
	// embed:begin
	c := leasetest.New(leasetest.Options{}) // three voters; NewDisk and NewMachine take yours
	if !c.Elect(1) {
		panic("no leader")
	}
	old := c.Node(1)
	c.Net.Split([]uint64{1}, []uint64{2, 3})
	_, status := old.TryRead(7) // 7 is a key: leasetest's state machine has numbers as keys
	fmt.Println("cut off a moment ago:", status)

	c.RunUntil(time.Minute, func() bool { return !old.Valid() })
	fmt.Println("another member leads already:", c.Leader() != old)
	c.RunUntil(time.Minute, func() bool { return c.Node(2).Valid() || c.Node(3).Valid() })
	_, status = old.TryRead(7)
	fmt.Println("the old leader may read:", status == leaderlease.StatusValid)
	// embed:end

	// Output:
	// cut off a moment ago: valid
	// another member leads already: false
	// the old leader may read: false
}
