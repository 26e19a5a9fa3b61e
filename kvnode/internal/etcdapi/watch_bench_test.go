package etcdapi

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// One writer and 1,000 watchers of what it writes, over gRPC in memory: server,
// clients and transport share the processors. An operation is one write, which
// all watchers get before the next one. Latency is from before the write is
// proposed until the watcher's client has the event.
func BenchmarkWatchFanOut(b *testing.B) {
	const watchers = 1000
	for _, streams := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("watchers=%d/streams=%d", watchers, streams), func(b *testing.B) {
			s := startServer(b, Config{})
			begun := time.Now()
			latency := make([]*hdrhistogram.Histogram, streams)
			var got atomic.Int64
			var wg sync.WaitGroup
			pipes := make([]*watchPipe, streams)
			for i := range streams {
				latency[i] = hdrhistogram.New(1, int64(time.Minute), 3)
				pipes[i] = s.watchPipe(b)
				for range watchers / streams {
					pipes[i].create(&pb.WatchCreateRequest{Key: []byte("k")})
					if r, err := pipes[i].Recv(); err != nil || !r.GetCreated() {
						b.Fatal(r, err)
					}
				}
				wg.Go(func() { pipes[i].count(begun, latency[i], &got, watchers/streams) })
			}
			n := int64(0)
			for b.Loop() {
				s.put(b, "k", strconv.FormatInt(int64(time.Since(begun)), 10))
				n += watchers
				for got.Load() < n {
					time.Sleep(20 * time.Microsecond)
				}
			}
			s.put(b, "k", "stop")
			wg.Wait()
			for _, h := range latency[1:] {
				latency[0].Merge(h)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(latency[0].ValueAtQuantile(50))/1e3, "p50-µs")
			b.ReportMetric(float64(latency[0].ValueAtQuantile(99))/1e3, "p99-µs")
		})
	}
}

// count receives until all watchers have got the last event.
func (p *watchPipe) count(begun time.Time, latency *hdrhistogram.Histogram, got *atomic.Int64, watchers int) {
	for ended := 0; ended < watchers; {
		r, err := p.Recv()
		if err != nil {
			p.tb.Error(err)
			return
		}
		for _, e := range r.GetEvents() {
			at, err := strconv.ParseInt(string(e.GetKv().GetValue()), 10, 64)
			if err != nil {
				ended++
				continue
			}
			_ = latency.RecordValue(int64(time.Since(begun)) - at)
			got.Add(1)
		}
	}
}
