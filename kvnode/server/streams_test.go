package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lpb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3lockpb"
)

// However many wait on a connection, watch, or stand in line for a lock: who holds
// that lock keeps its TTL lease alive and gives the lock back by the same one.
func TestWhoWaitsKeepsNobodyOut(t *testing.T) {
	s := solo(t)
	conn := dial(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	leases, locks := pb.NewLeaseClient(conn), lpb.NewLockClient(conn)
	granted, err := leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
	if err != nil {
		t.Fatal(err)
	}
	held, err := locks.Lock(ctx, &lpb.LockRequest{Name: []byte("l"), Lease: granted.GetID()})
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		_, err := locks.Lock(ctx, &lpb.LockRequest{Name: []byte("l")})
		next <- err
	}()
	for range 300 {
		if _, err := pb.NewWatchClient(conn).Watch(ctx); err != nil {
			t.Fatal(err)
		}
	}
	alive, err := leases.LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatalf("LeaseKeepAlive() beside 301 streams: %v", err)
	}
	if err := alive.Send(&pb.LeaseKeepAliveRequest{ID: granted.GetID()}); err != nil {
		t.Fatal(err)
	}
	if resp, err := alive.Recv(); err != nil || resp.GetTTL() != 60 {
		t.Errorf("a keep-alive is answered %v, %v, want 60 s", resp, err)
	}
	if _, err := locks.Unlock(ctx, &lpb.UnlockRequest{Key: held.GetKey()}); err != nil {
		t.Errorf("Unlock() = %v beside 302 streams, want it served", err)
	}
	if err := <-next; err != nil {
		t.Errorf("Lock() = %v, want the lock of whoever has given it back", err)
	}
}

// Who asks for more than there is room for is told so, with the limit, and what it
// has goes on; so does another client.
func TestTooManyStreams(t *testing.T) {
	s := solo(t, func(c *Config) { c.MaxOpenStreams = 30 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	greedy := dial(t, s)
	watch := func() error {
		stream, err := pb.NewWatchClient(greedy).Watch(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	for i := range 10 {
		if err := watch(); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	err := watch()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "10 are under way on this connection, and 10 on all, of 30 at most;") {
		t.Errorf("the 11th watch: %v, want ResourceExhausted with how many there are, and the limit", err)
	}
	if strings.Contains(err.Error(), "MaxOpenStreams") {
		t.Errorf("the 11th watch: %v, want no name that clients do not know", err)
	}
	for _, c := range []pb.KVClient{pb.NewKVClient(greedy), pb.NewKVClient(dial(t, s))} {
		if _, err := c.Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
			t.Errorf("Put() = %v beside 10 watches, want it served", err)
		}
	}
	// A request that was answered is counted for a moment more.
	until(t, "metrics say that 10 streams are open and 1 was refused", func() bool {
		_, metrics := page(t, s, "/metrics")
		return value(metrics, "kvnode_client_open_streams") == 10 && value(metrics, "kvnode_client_refused_streams_total") == 1
	})
}

// Watches over HTTP count as open streams, too, until their clients leave.
func TestTooManyWatchesOverHTTP(t *testing.T) {
	s := solo(t, func(c *Config) { c.MaxOpenStreams = 30 })
	watch := func(ctx context.Context) (int, string) {
		body := strings.NewReader(`{"create_request":{"key":"aw=="}}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.HTTPAddrs()[0]+"/v3/watch", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return resp.StatusCode, line
	}
	watching, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range 28 {
		if code, line := watch(watching); code != http.StatusOK {
			t.Fatalf("watch %d over HTTP = %d %s, want 200", i, code, line)
		}
	}
	if code, line := watch(t.Context()); code != http.StatusTooManyRequests || !strings.Contains(line, "28 on all, of 30 at most") {
		t.Errorf("watch 29 over HTTP = %d %s, want %d with how many there are, and the limit", code, line, http.StatusTooManyRequests)
	}
	leave()
	until(t, "no stream is open, and one was refused", func() bool {
		open, refused := s.clients.Streams()
		return open == 0 && refused == 1
	})
}

func (s *Server) openStreams() int64 {
	open, _ := s.clients.Streams()
	return open
}
