package etcdapi

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// leaseNode permits everything at once, under a lease, as a leader does.
type leaseNode struct{ *fakeNode }

func (leaseNode) Read(context.Context, kvnode.ReadMode) (kvnode.Read, error) {
	return kvnode.Read{Path: "lease", Remaining: 850 * time.Millisecond, Term: testTerm}, nil
}

// sink is the gRPC stream under a request. Like the real one it copies trailers.
type sink struct {
	trailer metadata.MD
	deaf    bool // it does not, so that the difference shows what they cost
}

func (s *sink) Method() string               { return "/etcdserverpb.KV/Range" }
func (s *sink) SetHeader(metadata.MD) error  { return nil }
func (s *sink) SendHeader(metadata.MD) error { return nil }
func (s *sink) SetTrailer(md metadata.MD) error {
	if !s.deaf {
		s.trailer = metadata.Join(nil, md)
	}
	return nil
}

// BenchmarkRange is one linearizable get under a lease, from interceptor to
// response, without network. The parts add up: the handler, what gRPC does with
// trailers, and the interceptor with its deadline.
func BenchmarkRange(b *testing.B) {
	n := newFakeNode(b)
	s := &kvServer{API: New(leaseNode{n}, Config{})}
	if _, err := s.Put(b.Context(), &pb.PutRequest{Key: []byte("key"), Value: make([]byte, 256)}); err != nil {
		b.Fatal(err)
	}
	incoming := metadata.NewIncomingContext(b.Context(), metadata.Pairs(
		":authority", "a", "content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", "client-api-version", "3.7"))
	info := &grpc.UnaryServerInfo{FullMethod: "/etcdserverpb.KV/Range"}
	handle := func(ctx context.Context, req any) (any, error) { return s.Range(ctx, req.(*pb.RangeRequest)) } //nolint:errcheck // it is one
	get := &pb.RangeRequest{Key: []byte("key")}
	for _, trailers := range []bool{false, true} {
		for _, intercepted := range []bool{false, true} {
			b.Run(fmt.Sprintf("trailers=%v/interceptor=%v", trailers, intercepted), func(b *testing.B) {
				ctx := grpc.NewContextWithServerTransportStream(incoming, &sink{deaf: !trailers})
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if intercepted {
						_, err = s.interceptUnary(ctx, get, info, handle)
					} else {
						_, err = s.Range(ctx, get)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// endless is a stream that receives the same message over and over, and accepts all answers.
type endless struct {
	grpc.ServerStream

	ctx     context.Context
	message fastwire.Raw
	window  chan struct{} // nil, or filled by each message and emptied by its answers
	left    int           // messages
	batch   int
	answers int
}

// Context implements grpc.ServerStream.
func (e *endless) Context() context.Context { return e.ctx }

// RecvMsg implements grpc.ServerStream.
func (e *endless) RecvMsg(m any) error {
	if e.left == 0 {
		return io.EOF
	}
	if e.window != nil {
		e.window <- struct{}{}
	}
	e.left--
	*m.(*fastwire.Raw) = e.message //nolint:errcheck // it is one
	return nil
}

// SendMsg implements grpc.ServerStream.
func (e *endless) SendMsg(m any) error {
	message, _ := m.(*outMessage)
	defer message.Put(nil) // it is written
	if e.window == nil {
		return nil
	}
	_, err := fastwire.Answers(message.data, func(fastwire.Answer) {
		if e.answers++; e.answers%e.batch == 0 {
			<-e.window
		}
	})
	return err
}

// BenchmarkFast is one request of a stream without network, by batch size: gets under a lease,
// and puts that are applied when proposed.
func BenchmarkFast(b *testing.B) {
	get, put := &pb.RangeRequest{Key: []byte("key")}, &pb.PutRequest{Key: []byte("key"), Value: make([]byte, 128)}
	for _, c := range []struct {
		method  string
		request proto.Message
	}{{"Range", get}, {"Put", put}} {
		for _, batch := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("method=%s/batch=%d", c.method, batch), func(b *testing.B) {
				n := newFakeNode(b)
				n.leased.Store(true)
				s := &kvServer{API: New(n, Config{Metrics: NewCallMetrics(false)})}
				if _, err := s.Put(b.Context(), put); err != nil {
					b.Fatal(err)
				}
				data, err := proto.Marshal(c.request)
				if err != nil {
					b.Fatal(err)
				}
				e := &endless{ctx: b.Context(), left: b.N/batch + 1, batch: batch}
				if c.method == "Put" { // an ID is not used twice at the same time
					e.window = make(chan struct{}, 1)
				}
				for i := range batch {
					e.message = fastwire.AppendRequest(e.message, fastwire.Request{ID: uint64(i + 1), Method: []byte(c.method), Message: data})
				}
				b.ReportAllocs()
				b.ResetTimer()
				if err := serveFast(s, e); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

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
