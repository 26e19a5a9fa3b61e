package bench_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
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

// BenchmarkRead3Nodes reads one register in each mode, with 1 to 256 reads in
// flight, without writes. Under lease, one in 64 latencies is taken.
func BenchmarkRead3Nodes(b *testing.B) {
	for _, inFlight := range []int{1, 16, 64, 256} {
		for _, mode := range modes {
			b.Run(fmt.Sprintf("inflight=%d/mode=%s", inFlight, mode), func(b *testing.B) {
				benchmarkReads(b, mode, inFlight)
			})
		}
	}
}

func benchmarkReads(b *testing.B, mode Mode, inFlight int) {
	c := start(b, mode)
	load := Load{InFlight: inFlight, Sample: 1, Op: func(ctx context.Context) error {
		_, err := c.Read(ctx)
		return err
	}}
	if mode == Lease {
		load.Sample = 64
	}
	leaseBefore, allBefore := underLease(c)
	b.ReportAllocs()
	b.ResetTimer()
	r, err := load.Run(b.Context(), b.N)
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	report(b, &r)
	if lease, all := underLease(c); all > allBefore {
		b.ReportMetric(100*float64(lease-leaseBefore)/float64(all-allBefore), "lease-%")
	}
}

func report(b *testing.B, r *Result) {
	b.ReportMetric(r.PerSecond(), "reads/s")
	b.ReportMetric(float64(r.Quantile(0.5)), "p50-ns")
	b.ReportMetric(float64(r.Quantile(0.99)), "p99-ns")
	b.ReportMetric(float64(r.Quantile(0.999)), "p99.9-ns")
}

// BenchmarkWrite3Nodes writes 128 bytes with the filter and without, in turn
// in blocks of 100, over the transport that reads use and without a disk.
// overhead-% compares the tenth percentiles of the blocks, because what else
// the machine does only ever adds; iqr-% is how far the blocks of one arm lie
// apart.
func BenchmarkWrite3Nodes(b *testing.B) {
	for _, inFlight := range []int{1, 16} {
		b.Run(fmt.Sprintf("inflight=%d/filter=both", inFlight), func(b *testing.B) { benchmarkWrites(b, inFlight) })
	}
}

func benchmarkWrites(b *testing.B, inFlight int) {
	const block = 100
	arms := []*Cluster{start(b, ReadIndex), start(b, Lease)} // off, on
	times := make([][]time.Duration, len(arms))
	b.ResetTimer()
	for done := 0; done < b.N || len(times[0]) < 5; done += len(arms) * block {
		for i, c := range arms {
			load := Load{InFlight: inFlight, Sample: block, Op: func(ctx context.Context) error { _, err := c.Write(ctx); return err }}
			r, err := load.Run(b.Context(), block)
			if err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], r.Elapsed/block)
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	at := func(i int, q float64) float64 { return float64(times[i][int(q*float64(len(times[i])))]) }
	b.ReportMetric(0, "ns/op") // of both arms together it means nothing
	b.ReportMetric(at(0, 0.1), "off-ns/op")
	b.ReportMetric(at(1, 0.1), "on-ns/op")
	b.ReportMetric(100*(at(1, 0.1)/at(0, 0.1)-1), "overhead-%")
	b.ReportMetric(100*(at(0, 0.75)-at(0, 0.25))/at(0, 0.5), "iqr-%")
}
