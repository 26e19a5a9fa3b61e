package rawnode

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

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
