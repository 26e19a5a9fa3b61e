package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	toleader "github.com/leaderlease/go/kvnode/client"
)

// No write fails of a hundred that are under way on a stream when the leader stops: it finishes those
// that it has taken, and the client makes the others elsewhere.
func TestTheLeaderStopsUnderWritesByAStream(t *testing.T) {
	streamed = true
	defer func() { streamed = false }()
	all := trio(t)
	c := clientWith(t, toleader.DialOptions(), all...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stopped atomic.Bool
	var wg sync.WaitGroup
	var done atomic.Int64
	many := make(chan struct{})
	for g := range 100 {
		wg.Go(func() {
			for !stopped.Load() {
				if _, err := c.Put(ctx, fmt.Sprintf("k%d", g), "v"); err != nil {
					t.Errorf("Put() while the leader stops: %v", err)
					return
				}
				if done.Add(1) == 3000 {
					close(many)
				}
			}
		})
	}
	await(t, "3,000 puts are made", many)
	lead, _ := leader(t, all)
	stop(t, lead)
	stopped.Store(true)
	wg.Wait()
}
