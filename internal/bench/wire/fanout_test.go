package wire

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// brief is how long a measurement lasts at first; longest is when a test gives up.
const (
	brief   = 100 * time.Millisecond
	longest = 30 * time.Second
)

// measured measures for longer and longer until there is enough to judge: no machine
// promises how much it does in a while.
func measured[R any](t *testing.T, enough func(R) bool, measure func(Times) (R, error)) R {
	t.Helper()
	for d := brief; ; d *= 2 {
		r, err := measure(Times{Warmup: d / 10, Duration: d})
		if err != nil {
			t.Fatal(err)
		}
		if enough(r) || d > longest {
			return r
		}
	}
}

// fannedOut measures until n puts are done, and each watcher has as many events, or
// something has failed.
func fannedOut(t *testing.T, n int64, f func() *FanOut) *FanOutResult {
	t.Helper()
	var watchers int64
	enough := func(r *FanOutResult) bool {
		return r.Put.Done >= n && r.Event.Done >= n*watchers || r.Event.Failed > 0
	}
	return measured(t, enough, func(times Times) (*FanOutResult, error) {
		one := f()
		watchers = int64(one.Watchers)
		return one.Measure(t.Context(), times)
	})
}

func TestFanOutCountsPutsAndEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	endpoint := serve(t)
	for _, rate := range []float64{0, 20} {
		var begun time.Time
		r := fannedOut(t, 3, func() *FanOut {
			begun = time.Now()
			return &FanOut{Leader: endpoint, Endpoints: []string{endpoint}, Watchers: 10, Streams: 3, Rate: rate}
		})
		due := int64(rate*time.Since(begun).Seconds()) + 1
		// On a busy machine puts of the open loop may have to wait.
		if waited := r.Put.Errors[errPutNotBegun.Error()]; r.Disorder != (Disorder{}) || r.Put.Failed+r.Event.Failed > waited {
			t.Errorf("rate %v: %+v, failures %v and %v, want none", rate, r.Disorder, r.Put.Errors, r.Event.Errors)
		}
		if r.Put.Done < 3 || r.Event.Done < 3*10 || r.Event.Latency.TotalCount() < r.Event.Done {
			t.Errorf("rate %v: %d puts and %d events, want 10 watchers to see each", rate, r.Put.Done, r.Event.Done)
		}
		if rate > 0 && r.Put.Done > due {
			t.Errorf("%d puts at %v a second, want the %d that were due at most", r.Put.Done, rate, due)
		}
	}
}

// Streams that are wrong on purpose show in the audit as what they are.
func TestTheAuditCatchesWrongWatches(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	endpoint := serve(t)
	for wrong, want := range map[Wrong]Disorder{
		"": {}, DropsEvent: {Missing: 1}, RepeatsEvent: {Duplicate: 1}, SwapsEvents: {OutOfOrder: 1},
	} {
		f := &FanOut{Leader: endpoint, Endpoints: []string{endpoint}, Watchers: 2, Streams: 1, Rate: 100, Wrong: wrong}
		// An answer may have several events, and a stream does what is wrong to the second one.
		once := func(d Disorder) Disorder {
			return Disorder{min(d.Missing, 1), min(d.Duplicate, 1), min(d.OutOfOrder, 1)}
		}
		enough := func(r *FanOutResult) bool {
			return r.Put.Done >= 5 && (wrong == "" || once(r.Disorder) == want)
		}
		r := measured(t, enough, func(times Times) (*FanOutResult, error) { return f.Measure(t.Context(), times) })
		if once(r.Disorder) != want {
			t.Errorf("%q: %+v, want only what it does", wrong, r.Disorder)
		}
	}
}

// bus is a server of puts and watches of everything, which may be told how to
// spoil the answer that brings an event.
type bus struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	spoil func(number int, resp *pb.WatchResponse) []*pb.WatchResponse

	mu struct {
		sync.Mutex
		rev     int64
		streams []chan *mvccpb.Event
	}
}

func (b *bus) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.rev++
	e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: r.GetKey(), Value: r.GetValue(), ModRevision: b.mu.rev}}
	for _, s := range b.mu.streams {
		s <- e
	}
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: b.mu.rev}}, nil
}

// Watch serves the one watcher of a stream.
func (b *bus) Watch(s grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	r, err := s.Recv()
	if err != nil {
		return err
	}
	events := make(chan *mvccpb.Event, 10_000)
	b.mu.Lock()
	b.mu.streams = append(b.mu.streams, events)
	b.mu.Unlock()
	id := r.GetCreateRequest().GetWatchId()
	if err := s.Send(&pb.WatchResponse{WatchId: id, Created: true}); err != nil {
		return err
	}
	for number := 1; ; number++ {
		select {
		case e := <-events:
			for _, resp := range b.spoil(number, &pb.WatchResponse{WatchId: id, Events: []*mvccpb.Event{e}}) {
				if err := s.Send(resp); err != nil {
					return err
				}
			}
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func startBus(t *testing.T, b *bus) (endpoint string) {
	t.Helper()
	return startFake(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, b)
		pb.RegisterWatchServer(s, b)
	})
}

// A server that is wrong is found out, however it is.
func TestTheAuditCatchesWrongServers(t *testing.T) {
	var held *pb.WatchResponse
	cancelled := &pb.WatchResponse{WatchId: firstID, Canceled: true, CancelReason: "tired"}
	for _, c := range []struct {
		name   string
		spoil  func(number int, resp *pb.WatchResponse) []*pb.WatchResponse
		want   Disorder
		failed string
	}{
		{"right", func(_ int, r *pb.WatchResponse) []*pb.WatchResponse { return []*pb.WatchResponse{r} }, Disorder{}, ""},
		{"drops the third", func(n int, r *pb.WatchResponse) []*pb.WatchResponse {
			if n == 3 {
				return nil
			}
			return []*pb.WatchResponse{r}
		}, Disorder{Missing: 1}, ""},
		{"repeats the third", func(n int, r *pb.WatchResponse) []*pb.WatchResponse {
			if n == 3 {
				return []*pb.WatchResponse{r, r}
			}
			return []*pb.WatchResponse{r}
		}, Disorder{Duplicate: 1}, ""},
		{"sends the third after the fourth", func(n int, r *pb.WatchResponse) []*pb.WatchResponse {
			switch n {
			case 3:
				held = r
				return nil
			case 4:
				return []*pb.WatchResponse{r, held}
			default:
				return []*pb.WatchResponse{r}
			}
		}, Disorder{OutOfOrder: 1}, ""},
		{"cancels in place of the third", func(n int, r *pb.WatchResponse) []*pb.WatchResponse {
			if n == 3 {
				return []*pb.WatchResponse{cancelled}
			}
			return []*pb.WatchResponse{r}
		}, Disorder{}, "watch cancelled: tired"},
		{"answers for another watch", func(n int, r *pb.WatchResponse) []*pb.WatchResponse {
			if n == 3 {
				return []*pb.WatchResponse{{WatchId: 99}, r}
			}
			return []*pb.WatchResponse{r}
		}, Disorder{}, "answer for watch 99 of 1"},
	} {
		r := fannedOut(t, 5, func() *FanOut {
			endpoint := startBus(t, &bus{spoil: c.spoil})
			return &FanOut{Leader: endpoint, Endpoints: []string{endpoint}, Watchers: 1, Streams: 1, Rate: 200}
		})
		if r.Disorder != c.want {
			t.Errorf("a server that %s: %+v, want %+v", c.name, r, c.want)
			continue
		}
		if c.failed != "" && r.Event.Errors[c.failed] != 1 || c.failed == "" && r.Event.Failed > 0 {
			t.Errorf("a server that %s: failures %v, want %q", c.name, r.Event.Errors, c.failed)
		}
	}
}

func TestWatchesThatCannotBeCreatedAreReported(t *testing.T) {
	endpoint := lie(t, nil)
	f := &FanOut{Leader: endpoint, Endpoints: []string{endpoint}, Watchers: 2, Streams: 1}
	if _, err := f.Measure(t.Context(), Times{Duration: brief}); err == nil || !strings.Contains(err.Error(), "2 watchers at "+endpoint) {
		t.Errorf("Measure() = %v, want an error that names %s", err, endpoint)
	}
}

// Nobody can tell what came of puts that failed; nothing else may be forgiven.
func TestPutsSayWhatTheyAre(t *testing.T) {
	p, other := newPuts(), newPuts()
	at := time.Now()
	number, begun, ok := p.decode([]byte(p.encode(7, at)))
	if !ok || number != 7 || !begun.Equal(at) {
		t.Errorf("decode(encode(7, %v)) = %d, %v, %v", at, number, begun, ok)
	}
	for _, v := range []string{"", "short", other.encode(7, at), p.encode(7, at) + "x"} {
		if _, _, ok := p.decode([]byte(v)); ok {
			t.Errorf("decode() of a value of %d bytes that is another's succeeds", len(v))
		}
	}
}
