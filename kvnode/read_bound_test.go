package kvnode

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

// A read whose caller sets no deadline gets one where it may have to wait, before it
// begins: what it waits for may never come. Under a valid lease, and a store that has
// all, it gets none: that would cost an allocation.
func TestAReadThatMayWaitHasADeadline(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		for _, n := range append(c.followers(leader), leader) {
			bounded := false
			_, err := n.reads.retry(context.Background(), func(ctx context.Context) (leaderlease.ReadResult, error) {
				_, bounded = ctx.Deadline()
				return leaderlease.ReadResult{}, nil
			})
			if want := n != leader; err != nil || bounded != want {
				t.Errorf("%s reads with a deadline: %v, %v, want %v", n.Name(), bounded, err, want)
			}
		}
		f := c.followers(leader)[0]
		_, err := f.reads.retry(context.Background(), func(ctx context.Context) (leaderlease.ReadResult, error) {
			select {
			case <-ctx.Done():
				return leaderlease.ReadResult{}, ctx.Err()
			case <-time.After(time.Hour):
				return leaderlease.ReadResult{}, errors.New("nobody ended the read")
			}
		})
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("retry() of a read that waits for ever = %v, want %v", err, ErrTimeout)
		}
	})
}

// Reads that fail are counted, but for those whose client has gone.
func TestFailedReadsAreCounted(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		before := n.reads.failed.Load()
		failure := errors.New("test")
		for _, step := range []struct {
			err  error
			want uint64
		}{{nil, 0}, {context.Canceled, 0}, {failure, 1}, {nil, 1}, {context.DeadlineExceeded, 2}} {
			_, err := n.reads.retry(t.Context(), func(context.Context) (leaderlease.ReadResult, error) { return leaderlease.ReadResult{}, step.err })
			if got := n.reads.failed.Load() - before; !errors.Is(err, step.err) || got != step.want {
				t.Errorf("retry() = %v, and %d reads have failed, want %v and %d", err, got, step.err, step.want)
			}
		}
	})
}

// wantEnd waits until n has ended, which takes no minute of the bubble's time.
func wantEnd(t *testing.T, n *Node) {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(time.Minute):
		t.Fatalf("%s still runs a minute after it had to end", n.Name())
	}
}
