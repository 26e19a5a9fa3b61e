package rawnode

import (
	"context"
	"fmt"
	"testing"
)

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
