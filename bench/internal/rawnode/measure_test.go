package rawnode

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Result is what a Load has measured.
type Result struct {
	Ops     int
	Elapsed time.Duration
	// latencies of the sampled operations, sorted.
	latencies []time.Duration
}

// PerSecond returns the throughput.
func (r *Result) PerSecond() float64 { return float64(r.Ops) / r.Elapsed.Seconds() }

// Quantile returns the latency that the fraction q of the sampled operations
// stayed within.
func (r *Result) Quantile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	return r.latencies[min(int(q*float64(len(r.latencies))), len(r.latencies)-1)]
}

// Load is a closed loop: each of InFlight goroutines does one operation after
// the other.
type Load struct {
	InFlight int
	Op       func(ctx context.Context) error
	// Sample is n if the latency of one operation in n is taken.
	// Taking it costs two clock readings, which is more than a lease read.
	Sample int
}

// yieldEvery is after how many operations a goroutine lets others run. Clients
// of a server wait for the network now and then; goroutines that never wait
// would keep the raft loop from running for 10 ms at a time each.
const yieldEvery = 64

// Run does ops operations and returns the first error of each goroutine.
func (l Load) Run(ctx context.Context, ops int) (Result, error) {
	var wg sync.WaitGroup
	latencies := make([][]time.Duration, l.InFlight)
	errs := make([]error, l.InFlight)
	start := time.Now()
	for i := range l.InFlight {
		n := ops / l.InFlight
		if i < ops%l.InFlight {
			n++
		}
		wg.Go(func() { latencies[i], errs[i] = l.loop(ctx, n) })
	}
	wg.Wait()
	r := Result{Ops: ops, Elapsed: time.Since(start), latencies: slices.Concat(latencies...)}
	slices.Sort(r.latencies)
	return r, errors.Join(errs...)
}

func (l Load) loop(ctx context.Context, n int) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, n/l.Sample+1)
	for i := range n {
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched()
		}
		if i%l.Sample != 0 {
			if err := l.Op(ctx); err != nil {
				return latencies, err
			}
			continue
		}
		start := time.Now()
		if err := l.Op(ctx); err != nil {
			return latencies, err
		}
		latencies = append(latencies, time.Since(start))
	}
	return latencies, nil
}
