package listener

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
	epb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
)

// pagesTime is a deadline that the HTTP server sets.
const pagesTime = 5 * time.Second

// plain returns Clients without TLS.
func plain() *Endpoint {
	return NewEndpoint(Config{MaxOpenStreams: 16, Logger: slog.New(slog.DiscardHandler)})
}

// gRPC removes its deadline after it has given a connection away. The deadline of the
// HTTP server stays.
func TestThePagesDeadlineStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := plain()
		defer e.End()
		near, far := net.Pipe()
		defer near.Close()
		a := &grpcConn{Conn: far, shared: true, keep: func() bool { return true }}
		go func() { _, _ = io.WriteString(near, "GET") }()
		go func() {
			if _, _, err := e.ServerHandshake(a); !errors.Is(err, credentials.ErrConnDispatched) {
				t.Errorf("ServerHandshake() = %v, want that the connection was given away", err)
			}
			time.Sleep(time.Second) // the pages are faster
			_ = a.SetDeadline(time.Time{})
		}()
		c, err := e.pages.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(pagesTime))
		// Without a deadline this is what ends the wait.
		defer time.AfterFunc(2*pagesTime, func() { _ = near.Close() }).Stop()
		if got, err := io.ReadAll(c); string(got) != "GET" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the pages read %q, %v, want GET and the end of their time", got, err)
		}
	})
}

// A connection of another listener is refused: it may lack TLS.
func TestConnectionsOfOtherListenersAreRefused(t *testing.T) {
	e := plain()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if _, _, err := e.ServerHandshake(far); err == nil {
		t.Error("ServerHandshake() of an unknown connection succeeds, want an error")
	}
}

// Push and Accept fail after Close.
func TestPushListenerAfterClose(t *testing.T) {
	h := NewPushListener()
	for range 2 {
		if err := h.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
	if err := h.Push(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Push() after Close = %v, want net.ErrClosed", err)
	}
	if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept() after Close = %v, want net.ErrClosed", err)
	}
}

// No method with a stream counts as a request that is answered soon: 500 keep-alives on
// one connection would slow down all that is sent there.
func TestStreamsAreNotShort(t *testing.T) {
	for _, service := range []grpc.ServiceDesc{
		pb.KV_ServiceDesc, pb.Watch_ServiceDesc, pb.Lease_ServiceDesc, pb.Cluster_ServiceDesc, pb.Maintenance_ServiceDesc,
		pb.Auth_ServiceDesc, epb.Election_ServiceDesc, lpb.Lock_ServiceDesc, healthpb.Health_ServiceDesc,
	} {
		for _, stream := range service.Streams {
			if name := "/" + service.ServiceName + "/" + stream.StreamName; kinds[name] == connlimit.Short {
				t.Errorf("streams of %s are Short", name)
			}
		}
	}
}
