package leaderlease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

// Work that only the leader may do ends when the lease does. Here leadership
// moves to another node while the work is under way.
func ExampleLease_Do() {
	group := startGroup()
	defer group.stop()
	leader := group.elect(1)

	started, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- leader.lease.Do(context.Background(), func(ctx context.Context) error {
			fmt.Println("node 1 works")
			close(started)
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond) // a step of the work
			}
			return ctx.Err()
		})
	}()

	<-started
	group.transfer(leader, group.members[2])
	if nl, ok := errors.AsType[*leaderlease.NoLeaseError](<-ended); ok {
		fmt.Println("node 1 has stopped:", nl.Status)
	}
	_ = group.members[2].lease.Do(context.Background(), func(context.Context) error {
		fmt.Println("node 2 works")
		return nil
	})

	// Output:
	// node 1 works
	// node 1 has stopped: transferring
	// node 2 works
}
