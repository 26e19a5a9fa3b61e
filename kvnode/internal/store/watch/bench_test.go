package watch

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// BenchmarkFanOut has one writer and 1,000 watchers of its key, on one stream or on several. An
// operation is one write that all watchers get. The value is the time of the write; latency is from
// before Apply until the watcher has the event.
func BenchmarkFanOut(b *testing.B) {
	const watchers = 1000
	for _, streams := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("watchers=%d/streams=%d", watchers, streams), func(b *testing.B) {
			r := newRig(b)
			r.hub.Start(r.store)
			defer r.hub.Close()
			f := &fan{begun: time.Now(), stop: make(chan struct{}), latency: make([]*hdrhistogram.Histogram, streams)}
			for i := range streams {
				s := r.hub.NewStream()
				for range watchers / streams {
					r.watch(s, key("k"))
				}
				f.latency[i] = hdrhistogram.New(1, int64(time.Minute), 3)
				f.wg.Go(func() { f.read(s, f.latency[i]) })
			}
			var slowest time.Duration
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				before := time.Now()
				r.put("k", strconv.FormatInt(int64(before.Sub(f.begun)), 10))
				slowest = max(slowest, time.Since(before))
				n += watchers
				// One write at a time, as with a single client.
				for f.got.Load() < n {
					time.Sleep(10 * time.Microsecond)
				}
			}
			close(f.stop)
			f.wg.Wait()
			f.report(b, n, slowest)
		})
	}
}

type fan struct {
	begun   time.Time
	stop    chan struct{}
	wg      sync.WaitGroup
	got     atomic.Int64
	latency []*hdrhistogram.Histogram // by stream
}

func (f *fan) read(s *Stream, latency *hdrhistogram.Histogram) {
	defer s.Close()
	for {
		n := int64(0)
		for r, ok := s.Next(); ok; r, ok = s.Next() {
			for _, e := range r.Events {
				at, err := strconv.ParseInt(string(e.GetKv().GetValue()), 10, 64)
				if err == nil {
					_ = latency.RecordValue(int64(time.Since(f.begun)) - at)
				}
				n++
			}
		}
		f.got.Add(n)
		select {
		case <-s.Ready():
		case <-f.stop:
			return
		}
	}
}

func (f *fan) report(b *testing.B, n int64, slowest time.Duration) {
	all := f.latency[0]
	for _, h := range f.latency[1:] {
		all.Merge(h)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(all.ValueAtQuantile(50))/1e3, "p50-µs")
	b.ReportMetric(float64(all.ValueAtQuantile(99))/1e3, "p99-µs")
	b.ReportMetric(float64(slowest)/1e3, "slowest-apply-µs")
}

// BenchmarkApply measures the cost of the hub for Apply: without a watcher, with a watcher of
// another key, and with one of the key.
func BenchmarkApply(b *testing.B) {
	for _, mode := range []string{"idle", "another", "watched"} {
		b.Run("watchers="+mode, func(b *testing.B) {
			r := newRig(b)
			r.hub.Start(r.store)
			defer r.hub.Close()
			s := r.hub.NewStream()
			defer s.Close()
			switch mode {
			case "another":
				r.watch(s, key("other"))
			case "watched":
				r.watch(s, key("k"))
			}
			data := encode(b, put("k", "v"))
			b.ReportAllocs()
			index := uint64(0)
			for b.Loop() {
				index++
				r.store.Apply(index, 1, data)
			}
		})
	}
}

// BenchmarkCatchUp measures a watcher that reads a long history.
func BenchmarkCatchUp(b *testing.B) {
	const writes = 100_000
	r := newRig(b)
	for i := range writes {
		r.put(fmt.Sprint("k/", i%1000), "v")
	}
	r.pass()
	for _, c := range []struct {
		name string
		req  Request
	}{{"all", prefix("k/")}, {"one", key("k/7")}} {
		b.Run("events="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				s := r.hub.NewStream()
				r.watch(s, from(c.req, 1))
				for _, resp := range drain(s) {
					n += len(resp.Events)
				}
				s.Close()
			}
			b.ReportMetric(float64(writes*b.N)/b.Elapsed().Seconds(), "writes-scanned/s")
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
