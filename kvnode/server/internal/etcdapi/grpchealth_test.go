package etcdapi

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
)

// leaderless makes reads wait for a leader that is never elected.
func leaderless(n *fakeNode) {
	n.onRead = func(ctx context.Context, m kvnode.ReadMode) error {
		if m == kvnode.ReadSerializable {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// replaying makes the member wait for its log.
func replaying(n *fakeNode) {
	n.replays.Store(true)
	n.onRead = func(ctx context.Context, _ kvnode.ReadMode) error {
		<-ctx.Done()
		return ctx.Err()
	}
}

func stopped(n *fakeNode) {
	n.ended.Store(true)
	n.onRead = func(context.Context, kvnode.ReadMode) error { return kvnode.ErrStopped }
}

// The services readyz and livez agree with the pages of these names. The server as a whole is
// SERVING also in a restart hold and on a learner: etcd's is always SERVING, and its fault
// injection expects that of a member that has just restarted.
func TestGRPCHealthAgreesWithProbes(t *testing.T) {
	for _, c := range []struct {
		name                string
		harm                func(*fakeNode)
		serves, ready, live healthpb.HealthCheckResponse_ServingStatus
	}{
		{"a sound member", func(*fakeNode) {}, serving, serving, serving},
		{"no leader", leaderless, notServing, notServing, serving},
		{"it waits for its log", replaying, notServing, notServing, serving},
		{"the member has stopped", stopped, notServing, notServing, notServing},
		{"a full disk", func(n *fakeNode) { n.full.Store(true) }, notServing, notServing, serving},
		{"checkpoints fail", func(n *fakeNode) { n.saved.Store(new(error(syscall.ENOSPC))) }, notServing, notServing, serving},
		{"a restart hold", func(n *fakeNode) { n.leader.Store(testMember + 1); n.hold.Store(int64(time.Millisecond)) }, serving, notServing, serving},
		{"a full store", noSpace, serving, serving, serving}, // as in etcd: reads and deletions are served
		{"a damaged store", corrupt, notServing, notServing, serving},
		{"a learner", learner, serving, notServing, serving},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newFakeNode(t)
				c.harm(n)
				a := New(n, Config{ElectionTimeout: time.Second})
				h := a.newHealthServer()
				for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{"": c.serves, "readyz": c.ready, "livez": c.live} {
					begun := time.Now()
					got, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
					if err != nil || got.GetStatus() != want {
						t.Errorf("Check(%q) = %v, %v, want %v", service, got.GetStatus(), err, want)
					}
					if took := time.Since(begun); took > 3*time.Second {
						t.Errorf("Check(%q) took %v, want 3 election timeouts at most", service, took)
					}
				}
				for path, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{"/readyz": c.ready, "/livez": c.live} {
					if code, body := ask(t, a.Handler(), http.MethodGet, path, ""); (code == http.StatusOK) != (want == serving) {
						t.Errorf("GET %s = %d %s, but gRPC says %v", path, code, body, want)
					}
				}
				all, err := h.List(t.Context(), &healthpb.HealthListRequest{})
				if err != nil || len(all.GetStatuses()) != 3 || all.GetStatuses()[""].GetStatus() != c.serves || all.GetStatuses()["readyz"].GetStatus() != c.ready || all.GetStatuses()["livez"].GetStatus() != c.live {
					t.Errorf("List() = %v, %v, want three services, %v, %v and %v", all, err, c.serves, c.ready, c.live)
				}
			})
		})
	}
}

func corrupt(n *fakeNode) {
	n.apply(&store.Command{Request: &pb.InternalRaftRequest{
		Alarm: &pb.AlarmRequest{MemberID: testMember, Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_CORRUPT},
	}})
}

func learner(n *fakeNode) {
	n.store.ApplyConf(9, testTerm, nil, &store.MemberChange{Set: &store.Member{ID: testMember, PeerURLs: []string{"http://127.0.0.1:1"}, Learner: true}})
}

func TestGRPCHealthOfAServiceThatIsNotThere(t *testing.T) {
	_, err := New(newFakeNode(t), Config{}).newHealthServer().Check(t.Context(), &healthpb.HealthCheckRequest{Service: "etcdserverpb.KV"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("Check(etcdserverpb.KV) = %v, want NotFound", err)
	}
}

// healthStream collects what a watching client receives.
type healthStream struct {
	grpc.ServerStream
	ctx  context.Context
	told chan healthpb.HealthCheckResponse_ServingStatus
}

func (s *healthStream) Context() context.Context { return s.ctx }

func (s *healthStream) Send(r *healthpb.HealthCheckResponse) error {
	s.told <- r.GetStatus()
	return nil
}

// watchHealth returns what a client receives, and the error that ends its stream.
func watchHealth(ctx context.Context, h *healthServer, service string) (told chan healthpb.HealthCheckResponse_ServingStatus, ended chan error) {
	told, ended = make(chan healthpb.HealthCheckResponse_ServingStatus, 100), make(chan error, 1)
	go func() {
		ended <- h.Watch(&healthpb.HealthCheckRequest{Service: service}, &healthStream{ctx: ctx, told: told})
	}()
	return told, ended
}

// hears fails unless the client has received exactly want since the last call.
func hears(t *testing.T, told <-chan healthpb.HealthCheckResponse_ServingStatus, when string, want ...healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	synctest.Wait()
	got := []healthpb.HealthCheckResponse_ServingStatus{}
	for len(told) > 0 {
		got = append(got, <-told)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s a client hears %v, want %v", when, got, want)
	}
}

// A watching client receives each change once, and no change during an election that ends in
// time.
func TestGRPCHealthIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		var lost atomic.Pointer[chan struct{}]
		n.onRead = func(ctx context.Context, m kvnode.ReadMode) error {
			back := lost.Load()
			if back == nil || m == kvnode.ReadSerializable {
				return nil
			}
			select {
			case <-*back:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		elect := func(after time.Duration) {
			back := make(chan struct{})
			lost.Store(&back)
			time.Sleep(after)
			lost.Store(nil)
			close(back)
			time.Sleep(2 * time.Second)
		}
		h := New(n, Config{ElectionTimeout: time.Second}).newHealthServer()
		ctx, stop := context.WithCancelCause(t.Context())
		told, ended := watchHealth(ctx, h, "")
		alive, _ := watchHealth(ctx, h, "livez")
		hears(t, told, "at first", serving)
		time.Sleep(time.Minute)
		hears(t, told, "while all is well")
		elect(2900 * time.Millisecond)
		hears(t, told, "during an election")
		elect(time.Minute)
		hears(t, told, "without a leader for a minute", notServing, serving)
		stop(rpctypes.ErrGRPCStopped)
		hears(t, told, "at the end", notServing)
		if err := <-ended; status.Code(err) != codes.Unavailable {
			t.Errorf("Watch() of a server that stops = %v, want Unavailable", err)
		}
		hears(t, alive, "of the process alone", serving, notServing)
	})
}

// As the protocol requires, the stream of an unknown service stays open: the service may be
// added.
func TestGRPCHealthWatchOfAServiceThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		told, ended := watchHealth(ctx, New(newFakeNode(t), Config{}).newHealthServer(), "x")
		time.Sleep(time.Minute)
		hears(t, told, "of an unknown service", healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
		leave()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("Watch() after its client has left = %v, want Canceled", err)
		}
	})
}

// A thousand watching clients cause two reads per second. One that leaves during a check does not
// affect the others.
func TestGRPCHealthIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		var reads atomic.Int64
		n.onRead = func(ctx context.Context, m kvnode.ReadMode) error {
			if m == kvnode.ReadSerializable {
				return nil
			}
			reads.Add(1)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
				return nil
			}
		}
		h := New(n, Config{}).newHealthServer()
		first, leave := context.WithCancel(t.Context())
		_, ended := watchHealth(first, h, "")
		synctest.Wait()
		var all []chan healthpb.HealthCheckResponse_ServingStatus
		for range 1000 {
			told, _ := watchHealth(t.Context(), h, "")
			all = append(all, told)
		}
		synctest.Wait()
		leave()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("Watch() after its client has left = %v, want Canceled", err)
		}
		time.Sleep(10*time.Second + 50*time.Millisecond)
		for _, told := range all {
			hears(t, told, "beside one that leaves", serving)
		}
		if got := reads.Load(); got > 21 {
			t.Errorf("1000 clients in 10s made %d reads, want 21 at most", got)
		}
	})
}
