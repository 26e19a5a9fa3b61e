package leaderlease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/fence"
)

// A read tries the lease first, which costs nanoseconds, and falls back to Read.
// Either way the value is fetched afterwards, never before.
func ExampleLease_Read() {
	group := startGroup()
	defer group.stop()
	leader := group.elect(1)
	leader.put("color", "green")

	get := func(m *member, key string) string {
		index, status := m.lease.TryRead()
		if status == leaderlease.StatusValid && m.applied.Load() >= index {
			return m.get(key) + " (under the lease)"
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := m.lease.Read(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return fmt.Sprintf("%s (lease: %v, so by path %v)", m.get(key), status, r.Path)
	}

	fmt.Println(get(leader, "color"))
	fmt.Println(get(group.members[3], "color"))
	leader.lease.SetDiskStalled(true)
	fmt.Println(get(leader, "color"))

	// Output:
	// green (under the lease)
	// green (lease: not_leader, so by path forwarded)
	// green (lease: disk, so by path read_index)
}

// One check of the lease serves all requests that had arrived before it.
func ExampleLease_TryRead() {
	group := startGroup()
	defer group.stop()
	leader := group.elect(1)
	leader.put("color", "green")
	leader.put("shape", "round")

	batch := []string{"color", "shape", "color"}
	if index, status := leader.lease.TryRead(); status == leaderlease.StatusValid && leader.applied.Load() >= index {
		for _, key := range batch {
			fmt.Println(key, "is", leader.get(key))
		}
	}

	// Output:
	// color is green
	// shape is round
	// color is green
}

// Without a leader a read fails at once, and says why.
func ExampleNoLeaseError() {
	group := startGroup()
	defer group.stop()

	_, err := group.members[1].lease.Read(context.Background())
	if nl, ok := errors.AsType[*leaderlease.NoLeaseError](err); ok {
		fmt.Println("reason:", nl.Status)
		fmt.Println("try node:", nl.Leader)
	}

	// Output:
	// reason: not_leader
	// try node: 0
}

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
