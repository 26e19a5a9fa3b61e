package leaderlease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

// A read tries the lease first, which costs nanoseconds, and falls back to Read,
// which finds another way or says why there is none. Either way the value is
// fetched afterwards, never before.
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
