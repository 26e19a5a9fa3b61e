package leaderlease_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

// handClock moves when it is told to.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() leaderlease.Instant { return leaderlease.Instant(c.now.Load()) }
func (c *handClock) Add(d time.Duration)      { c.now.Add(int64(d)) }

// A test moves time by hand: the lease follows Config.Clock. Package leasetest has
// a whole cluster on such clocks, each with its own rate.
func ExampleConfig_fakeClock() {
	clock := new(handClock)
	clock.Add(time.Hour)
	group := startGroup(func(cfg *leaderlease.Config) { cfg.Clock = clock })
	defer group.stop()
	leader := group.elect(1)

	s := leader.lease.Info()
	fmt.Printf("the lease lasts %v, of which %v are margin\n", s.Duration, s.MaxClockSkew)
	show := func(when string) {
		_, status := leader.lease.TryRead()
		fmt.Printf("%s: %v\n", when, status)
	}
	show("renewed just now")
	clock.Add(7 * time.Second)
	show("7 s later")
	clock.Add(1 * time.Second)
	show("8 s later")
	clock.Add(1 * time.Second)
	show("9 s later")
	leader.leads() // sends heartbeats, which renew the lease
	show("renewed again")

	// Output:
	// the lease lasts 9s, of which 1.8s are margin
	// renewed just now: valid
	// 7 s later: valid
	// 8 s later: margin
	// 9 s later: expired
	// renewed again: valid
}
