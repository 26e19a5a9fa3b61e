package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// source makes batches of entries with consecutive indexes.
type source struct {
	last uint64
	data []byte
}

func newSource() *source {
	s := &source{data: make([]byte, 256)}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range s.data {
		s.data[i] = byte(r.Uint32())
	}
	return s
}

func (s *source) batch(n int) []*raftpb.Entry {
	out := make([]*raftpb.Entry, n)
	for i := range out {
		s.last++
		out[i] = &raftpb.Entry{Term: new(uint64(1)), Index: new(s.last), Type: raftpb.EntryNormal.Enum(), Data: s.data}
	}
	return out
}

// timed is one arm's log, and how long each of its saves has taken.
type timed struct {
	name   string
	save   save
	source *source
	took   []time.Duration
}

func open(b *testing.B, i, n int) *timed {
	t := &timed{name: arms[i].name, source: newSource()}
	t.save = arms[i].open(b, b.TempDir(), t.source)
	for range 20 {
		must(b, t.save(t.source.batch(n)))
	}
	return t
}

func (t *timed) one(b *testing.B, n int) {
	entries := t.source.batch(n)
	began := time.Now()
	must(b, t.save(entries))
	t.took = append(t.took, time.Since(began))
}

func (t *timed) report(b *testing.B, n int, prefix string) {
	slices.Sort(t.took)
	var sum time.Duration
	for _, d := range t.took {
		sum += d
	}
	b.ReportMetric(float64(len(t.took)*n)/sum.Seconds(), prefix+"entries/s")
	b.ReportMetric(float64(t.took[len(t.took)/2].Nanoseconds())/1e3, prefix+"p50-µs")
	b.ReportMetric(float64(t.took[len(t.took)*99/100].Nanoseconds())/1e3, prefix+"p99-µs")
}

var sizes = []int{1, 16, 256}

// BenchmarkSave runs one arm after the other. Compare its results only if the
// machine does nothing else.
func BenchmarkSave(b *testing.B) {
	for _, n := range sizes {
		for i := range arms {
			b.Run(fmt.Sprintf("batch=%d/log=%s", n, arms[i].name), func(b *testing.B) {
				t := open(b, i, n)
				for b.Loop() {
					t.one(b, n)
				}
				t.report(b, n, "")
			})
		}
	}
}

// BenchmarkInTurn gives each arm eight saves in turn, so that all of them see
// the same disturbances. An operation is one turn of all.
func BenchmarkInTurn(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			var all []*timed
			for i := range arms {
				all = append(all, open(b, i, n))
			}
			first := 0
			for b.Loop() {
				for i := range all {
					t := all[(first+i)%len(all)]
					for range 8 {
						t.one(b, n)
					}
				}
				first++
			}
			for _, t := range all {
				t.report(b, n, t.name+":")
			}
		})
	}
}
