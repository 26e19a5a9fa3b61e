package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lpb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
	"github.com/leaderlease/go/kvnode/server/status"
)

// However many calls wait or watch on a connection, the holder of a lock can keep its TTL lease
// alive and unlock on the same connection.
func TestWaitingStreamsLeaveCapacity(t *testing.T) {
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
		t.Errorf("Lock() = %v, want the unlocked lock", err)
	}
}

// A client above the limit gets an error with the limit. Its other streams and other clients are
// not affected.
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
	if grpcstatus.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "10 are under way on this connection, and 10 on all, of 30 at most;") {
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

// Watches over HTTP count as open streams until their clients leave.
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

// A client that reads a large reply in small pieces sends two window updates for each, like Go's
// HTTP client and proxies built on it. It gets the whole reply.
func TestRepliesReadInSmallPieces(t *testing.T) {
	s := solo(t)
	c := client(t, s)
	const values, each = 20, 1 << 20
	value := string(make([]byte, each))
	for i := range values {
		if _, err := c.Put(t.Context(), "k"+strconv.Itoa(i), value); err != nil {
			t.Fatal(err)
		}
	}
	body, err := proto.Marshal(&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
	if err != nil {
		t.Fatal(err)
	}
	body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.ClientAddrs()[0]+pb.KV_Range_FullMethodName, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, 4<<10))
		_ = resp.Body.Close()
		if err != nil || n < values*each || resp.Trailer.Get("Grpc-Status") != "0" {
			t.Fatalf("a reply of %d bytes, read 4 KiB at a time, ends after %d with %v and status %q", values*each, n, err, resp.Trailer.Get("Grpc-Status"))
		}
	}
}

// ending is an interceptor that closes its client's connection.
type ending struct{ done chan bool }

func (e ending) end(ctx context.Context) {
	ended := false
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.Addr.(interface {
			End()
			Ended() bool
		}); ok {
			before := c.Ended()
			c.End()
			ended = !before && c.Ended()
		}
	}
	e.done <- ended
}

// A handler can close its client's connection by the address, in plain text and with TLS.
func TestConnectionsOfClientsCanBeEnded(t *testing.T) {
	f := newFiles(t)
	for name, change := range map[string]func(*Config){"plain text": func(*Config) {}, "TLS": f.encrypted} {
		t.Run(name, func(t *testing.T) {
			s := solo(t, onePort, change)
			e := ending{make(chan bool, 1)}
			g := grpc.NewServer(slices.Concat(s.grpcOptions(), s.clients.Options(s.api.AdmitFastStream), []grpc.ServerOption{grpc.ChainUnaryInterceptor(
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
					e.end(ctx)
					return handle(ctx, req)
				})})...)
			status.Register(g, s)
			secure := name == "TLS"
			l := s.clients.ForGRPC(ephemeral(t), secure)
			s.wg.Go(func() { _ = g.Serve(l) })
			defer g.Stop()
			creds := insecure.NewCredentials()
			if secure {
				creds = credentials.NewTLS(f.trusting())
			}
			conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(creds))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = status.Fetch(t.Context(), conn)
			if ended := <-e.done; !ended || grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("a call on a closed connection = %v, closed: %v; want Unavailable", err, ended)
			}
		})
	}
}
