package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toleader "github.com/leaderlease/go/kvnode/client"
)

// When a member stops, streams that wait for its log or for a leader end with Unavailable, so
// that clients continue at another member. clientv3 gives up a watch after Canceled.
func TestStreamsThatWaitEndWithUnavailable(t *testing.T) {
	all := trio(t)
	for _, s := range all {
		stop(t, s)
	}
	alone, err := again(t, all[0], func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := dial(t, alone)
	streams := map[string]func() (grpc.ClientStream, error){
		"Watch": func() (grpc.ClientStream, error) {
			s, err := pb.NewWatchClient(conn).Watch(ctx)
			if err != nil {
				return nil, err
			}
			return s, s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}})
		},
		"LeaseKeepAlive": func() (grpc.ClientStream, error) {
			s, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
			if err != nil {
				return nil, err
			}
			return s, s.Send(&pb.LeaseKeepAliveRequest{ID: 1})
		},
		"RangeStream": func() (grpc.ClientStream, error) {
			return pb.NewKVClient(conn).RangeStream(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
		},
		"Snapshot": func() (grpc.ClientStream, error) {
			return pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
		},
	}
	ends := map[string]chan error{}
	for name, open := range streams {
		stream, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		end := make(chan error, 1)
		ends[name] = end
		go func() { end <- stream.RecvMsg(new(pb.WatchResponse)) }()
	}
	until(t, "the member serves all streams", func() bool { return alone.openStreams() == int64(len(streams)) })
	stop(t, alone)
	for name, end := range ends {
		if err := <-end; status.Code(err) != codes.Unavailable {
			t.Errorf("%s ends with %v, want Unavailable", name, err)
		} else if known, is := rpctypes.Error(err).(rpctypes.EtcdError); is { //nolint:errorlint // as clientv3 does
			t.Errorf("%s ends with %v, after which KeepAliveOnce does not try again", name, known)
		}
	}
}

// During a rolling restart that relies on /readyz, the leader finds a successor, and clients that
// retry continue.
func TestARollingRestartThatTrustsReadyz(t *testing.T) {
	skipShort(t)
	all := trio(t, func(c *Config) {
		c.Node.TickInterval, c.Node.ElectionTimeout = 50*time.Millisecond, 500*time.Millisecond
	})
	load := startLoad(t, client(t, all...))
	last, others := leader(t, all)
	others[0] = restart(t, others[0])
	others[1] = restart(t, others[1])
	stop(t, last)
	leader(t, others) // the leader waits until it has a successor
	restart(t, last)
	load.end(t)
}

// restart stops a member, starts it at the same addresses, and waits until /readyz succeeds.
func restart(t *testing.T, s *Server) *Server {
	t.Helper()
	stop(t, s)
	c := s.cfg
	c.Node.Listener, c.ClientListener, c.HTTPListener = nil, nil, nil
	next, err := Start(c)
	if err != nil {
		t.Fatalf("Start(%s) again: %v", c.Node.Name, err)
	}
	t.Cleanup(func() { stop(t, next) })
	for code := 0; code != http.StatusOK; time.Sleep(5 * time.Millisecond) {
		code, _ = page(t, next, "/readyz")
	}
	if hold := next.Node().Status().Lease.Promise.Hold; hold > 0 {
		t.Errorf("/readyz of %s is good %v before it may vote", c.Node.Name, hold)
	}
	return next
}

// load writes and reads until it is ended, and retries failed requests.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   [2]int           // writes and reads
	gaps   [2]time.Duration // longest between two of them
}

func startLoad(t *testing.T, c *clientv3.Client) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	for i, op := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := c.Put(ctx, "k", "v"); return err },
		func(ctx context.Context) error { _, err := c.Get(ctx, "k"); return err },
	} {
		l.wg.Go(func() {
			last, limit := time.Now(), 300*time.Millisecond
			for ctx.Err() == nil {
				one, end := context.WithTimeout(ctx, limit)
				err := op(one)
				end()
				if now := time.Now(); err == nil {
					l.done[i]++
					l.gaps[i], last = max(l.gaps[i], now.Sub(last)), now
				}
				if l.done[i] == 0 { // a busy machine or disk may need longer
					limit = min(2*limit, patience)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return l
}

func (l *load) end(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	t.Logf("%d writes, longest pause %v; %d reads, longest pause %v", l.done[0], l.gaps[0], l.done[1], l.gaps[1])
	if l.done[0] == 0 || l.done[1] == 0 {
		t.Errorf("%d writes and %d reads during a rolling restart, want many", l.done[0], l.done[1])
	}
}

// Of a hundred concurrent writes on a stream none fails when the leader stops: the leader
// finishes those that it has received, and the client makes the others elsewhere.
func TestTheLeaderStopsUnderWritesByAStream(t *testing.T) {
	streamed = true
	defer func() { streamed = false }()
	all := trio(t)
	c := clientWith(t, toleader.DialOptions(), all...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stopped atomic.Bool
	var wg sync.WaitGroup
	var done atomic.Int64
	many := make(chan struct{})
	for g := range 100 {
		wg.Go(func() {
			for !stopped.Load() {
				if _, err := c.Put(ctx, fmt.Sprintf("k%d", g), "v"); err != nil {
					t.Errorf("Put() while the leader stops: %v", err)
					return
				}
				if done.Add(1) == 3000 {
					close(many)
				}
			}
		})
	}
	await(t, "3,000 puts are made", many)
	lead, _ := leader(t, all)
	stop(t, lead)
	stopped.Store(true)
	wg.Wait()
}
