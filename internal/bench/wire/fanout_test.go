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

// brief is long enough for some puts, on a busy machine, too.
var brief = Times{Duration: 300 * time.Millisecond}

func TestFanOutCountsPutsAndEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	endpoint := serve(t)
	for _, rate := range []float64{0, 200} {
		f := &FanOut{Leader: endpoint, Endpoints: []string{endpoint}, Watchers: 10, Streams: 3, Rate: rate}
		r, err := f.Measure(t.Context(), Times{Warmup: 20 * time.Millisecond, Duration: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		// On a busy machine puts of the open loop may have to wait.
		if waited := r.Put.Errors[errPutNotBegun.Error()]; r.Disorder != (Disorder{}) || r.Put.Failed+r.Event.Failed > waited {
			t.Errorf("rate %v: %+v, failures %v and %v, want none", rate, r.Disorder, r.Put.Errors, r.Event.Errors)
		}
		if r.Put.Done < 3 || r.Event.Done < 3*10 || r.Event.Latency.TotalCount() < r.Event.Done {
			t.Errorf("rate %v: %d puts and %d events, want 10 watchers to see each", rate, r.Put.Done, r.Event.Done)
		}
		if rate > 0 && r.Put.Done > 45 {
			t.Errorf("%d puts in 200ms at %v a second", r.Put.Done, rate)
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
		r, err := f.Measure(t.Context(), brief)
		if err != nil {
			t.Fatal(err)
		}
		// An answer may have several events.
		d := r.Disorder
		got := Disorder{min(d.Missing, 1), min(d.Duplicate, 1), min(d.OutOfOrder, 1)}
		if got != want {
			t.Errorf("%q: %+v, want only what it does", wrong, d)
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
		endpoint := startBus(t, &bus{spoil: c.spoil})
		f := &FanOut{Leader: endpoint, Endpoints: []string{endpoint}, Watchers: 1, Streams: 1, Rate: 200}
		r, err := f.Measure(t.Context(), brief)
		if err != nil || r.Disorder != c.want {
			t.Errorf("a server that %s: %+v, %v, want %+v", c.name, r, err, c.want)
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
	if _, err := f.Measure(t.Context(), brief); err == nil || !strings.Contains(err.Error(), "2 watchers at "+endpoint) {
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
