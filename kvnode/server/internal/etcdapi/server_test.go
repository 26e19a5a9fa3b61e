package etcdapi

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/fastkv"
)

// server is an API on an in-memory listener.
type server struct {
	*fakeNode
	api    *API
	listen *bufconn.Listener
	conn   *grpc.ClientConn
	kv     pb.KVClient
}

// streamed has clients send to the KV service by a stream, with the lease or without.
var streamed struct {
	on, leased bool
	calls      atomic.Int64 // that came all the same
}

func countCalls(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/etcdserverpb.KV/") {
		streamed.calls.Add(1)
	}
	return handle(ctx, req)
}

func startServer(tb testing.TB, cfg Config) *server {
	tb.Helper()
	s := &server{fakeNode: newFakeNode(tb), listen: bufconn.Listen(1 << 20)}
	s.api = New(s.fakeNode, cfg)
	g := grpc.NewServer(append(s.api.ServerOptions(), grpc.ChainUnaryInterceptor(countCalls))...)
	s.api.RegisterFast(g)
	s.api.Register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(s.listen) }()
	conn, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(s.dial))
	if err != nil {
		tb.Fatal(err)
	}
	s.conn, s.kv = conn, pb.NewKVClient(conn)
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
		g.Stop()
		// A test that is over at once can stop the server before it serves.
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			tb.Error(err)
		}
	})
	if streamed.on {
		s.kv = fastkv.New(s.client(tb))
		s.leased.Store(streamed.leased)
	}
	return s
}

func (s *server) dial(ctx context.Context, _ string) (net.Conn, error) {
	return s.listen.DialContext(ctx)
}

// client returns an etcd client of the server.
func (s *server) client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"http://a"},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(s.dial)},
		Logger:      zap.NewNop(),
		// Once. What fails for good is not to be repeated a hundred times.
		MaxUnaryRetries: 1,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if streamed.on {
		if err := fastkv.Use(c); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func (s *server) put(tb testing.TB, key, value string) *pb.PutResponse {
	tb.Helper()
	resp, err := s.kv.Put(tb.Context(), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		tb.Fatalf("Put(%q) = %v", key, err)
	}
	return resp
}

// wantStatus fails unless err has the code and text of want.
func wantStatus(tb testing.TB, what string, err, want error) {
	tb.Helper()
	got, exp := status.Convert(err), status.Convert(want)
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok { // from clientv3
		got = status.New(e.Code(), e.Error())
	}
	if got.Code() != exp.Code() || got.Message() != exp.Message() {
		tb.Errorf("%s = %v %q, want %v %q", what, got.Code(), got.Message(), exp.Code(), exp.Message())
	}
}

// wantHeader fails unless h is of this member and of that revision.
func wantHeader(tb testing.TB, what string, h *pb.ResponseHeader, revision int64) {
	tb.Helper()
	if h.GetClusterId() != testCluster || h.GetMemberId() != testMember || h.GetRaftTerm() != testTerm || h.GetRevision() != revision {
		tb.Errorf("header of %s = %v, want cluster %d member %d term %d revision %d", what, h, testCluster, testMember, testTerm, revision)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is not said is etcd's; the deadline follows the election timeout, and
// only a quota may be negative.
func TestConfigHasTheDefaultsOfEtcd(t *testing.T) {
	c := Config{}.WithDefaults().withNodeDefaults(kvnode.Config{ElectionTimeout: 3 * time.Second}.WithDefaults())
	if c.MaxTxnOps != 128 || c.MaxRequestBytes != 1572864 || c.MaxConcurrentStreams != math.MaxUint32 || c.MaxInFlight != 10_000 ||
		c.RequestTimeout != 11*time.Second || c.QuotaBytes != 2147483648 || c.Logger == nil {
		t.Errorf("defaults = %+v", c)
	}
	set := Config{MaxTxnOps: 1, MaxRequestBytes: 2, MaxConcurrentStreams: 3, MaxInFlight: 4, RequestTimeout: 5, QuotaBytes: -6}.WithDefaults().withNodeDefaults(kvnode.Config{}.WithDefaults())
	if set.MaxTxnOps != 1 || set.MaxRequestBytes != 2 || set.MaxConcurrentStreams != 3 || set.MaxInFlight != 4 || set.RequestTimeout != 5 || set.QuotaBytes != -6 {
		t.Errorf("WithDefaults changed what was set: %+v", set)
	}
}
