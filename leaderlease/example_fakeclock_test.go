package leaderlease_test

import (
	"fmt"
	"time"

	bbj "github.com/benbjohnson/clock"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock/benbjohnson"
)

// A test moves time by hand: the lease follows the clock it was given. Package
// leasetest has a whole cluster on such clocks, each with a rate of its own.
func ExampleConfig_fakeClock() {
	mock := bbj.NewMock()
	group := startGroup(func(cfg *leaderlease.Config) { cfg.Clock = benbjohnson.From(mock) })
	defer group.stop()
	leader := group.elect(1)

	s := leader.lease.Info()
	fmt.Printf("the lease lasts %v, of which %v are margin\n", s.Duration, s.MaxClockSkew)
	show := func(when string) {
		_, status := leader.lease.TryRead()
		fmt.Printf("%s: %v\n", when, status)
	}
	show("renewed just now")
	mock.Add(7 * time.Second)
	show("7 s later")
	mock.Add(1 * time.Second)
	show("8 s later")
	mock.Add(1 * time.Second)
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
