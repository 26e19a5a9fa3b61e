package leaderlease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/clock"
)

// proposal is what a benchmark proposes: a small write.
var proposal = make([]byte, 128)

// BenchmarkProposal takes a proposal of 128 bytes from the leader through all
// three nodes, until everybody has applied it: with the filter and without. No
// disk and no network hide the filter, so this is the worst case.
// arms=interleaved runs both in turn, and is the one to quote: overhead-%
// compares the tenth percentiles of blocks of 64 proposals, because what else
// the machine does only ever adds.
func BenchmarkProposal(b *testing.B) {
	for _, filter := range []string{"off", "on"} {
		b.Run("filter="+filter, func(b *testing.B) {
			t := newTrio(b, clock.System(), filter == "on")
			sent := t.sent
			b.ReportAllocs()
			for b.Loop() {
				t.propose(b)
			}
			b.ReportMetric(float64(t.sent-sent)/float64(b.N), "msgs/op")
		})
	}
	b.Run("arms=interleaved", benchmarkProposalArms)
}

func benchmarkProposalArms(b *testing.B) {
	const block = 64
	arms := []*trio{newTrio(b, clock.System(), false), newTrio(b, clock.System(), true)}
	times := make([][]time.Duration, len(arms))
	b.ResetTimer()
	for done := 0; done < b.N || len(times[0]) < 3; done += len(arms) * block {
		for i, t := range arms {
			start := time.Now()
			for range block {
				t.propose(b)
			}
			times[i] = append(times[i], time.Since(start)/block)
		}
	}
	off, on := float64(lowest(times[0])), float64(lowest(times[1]))
	b.ReportMetric(0, "ns/op") // of both arms together it means nothing
	b.ReportMetric(off, "off-ns/op")
	b.ReportMetric(on, "on-ns/op")
	b.ReportMetric(100*(on/off-1), "overhead-%")
}

// propose makes one proposal and waits until all nodes have applied it.
func (t *trio) propose(tb testing.TB) {
	t.must(tb, t.leader().raw.Propose(proposal))
	t.pump(tb)
	t.compact(tb)
}

func lowest(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/10]
}
