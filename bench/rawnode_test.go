package bench_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

// modes are all that there are.
var modes = []Mode{Lease, ReadIndex}

// underLease returns how many reads were served under the lease at once, and how many in
// all, by the count of the lease itself; both are 0 in mode ReadIndex.
func underLease(c *Cluster) (lease, all uint64) {
	if c.Lease() == nil {
		return 0, 0
	}
	stats := c.Lease().Stats()
	for _, served := range stats.Reads {
		all += served
	}
	return stats.Reads[leaderlease.PathLease], all
}

// start returns a running cluster that the end of the test stops.
func start(tb testing.TB, mode Mode) *Cluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Start(ctx, mode)
	if err != nil {
		tb.Fatalf("Start(%s): %v", mode, err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("Close(): %v", err)
		}
	})
	return c
}

func TestReadsSeeCompletedWrites(t *testing.T) {
	for _, mode := range modes {
		t.Run("mode="+string(mode), func(t *testing.T) {
			c := start(t, mode)
			for range 50 {
				version, err := c.Write(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got, err := c.Read(t.Context()); got != version || err != nil {
					t.Fatalf("Read() = %d, %v, want %d", got, err, version)
				}
			}
		})
	}
}

func TestReadsInParallel(t *testing.T) {
	for _, mode := range modes {
		t.Run("mode="+string(mode), func(t *testing.T) {
			c := start(t, mode)
			load := Load{InFlight: 64, Sample: 1, Op: func(ctx context.Context) error {
				_, err := c.Read(ctx)
				return err
			}}
			r, err := load.Run(t.Context(), 2000)
			if err != nil || r.Ops != 2000 || len(r.latencies) != 2000 {
				t.Errorf("Run(2000) = %d operations, %d latencies, %v, want 2000 of both", r.Ops, len(r.latencies), err)
			}
			if lease, all := underLease(c); (mode == Lease) != (all >= 2000) || lease > all {
				t.Errorf("underLease() = %d of %d in mode %s", lease, all, mode)
			}
		})
	}
}

func TestReadGivesUpWithItsContext(t *testing.T) {
	c := start(t, ReadIndex)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// It may have been answered before it looked.
	if _, err := c.Read(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Read() after cancel = %v, want %v", err, context.Canceled)
	}
}

func TestQuantile(t *testing.T) {
	r := Result{latencies: []time.Duration{1, 2, 3, 4}}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := r.Quantile(q); got != want {
			t.Errorf("Quantile(%v) = %d, want %d", q, got, want)
		}
	}
	if got := (&Result{}).Quantile(0.5); got != 0 {
		t.Errorf("Quantile of nothing = %d, want 0", got)
	}
}
