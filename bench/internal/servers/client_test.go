package servers

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/kvnode"
	kvnodeclient "github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve starts a kvnode of one member and returns its endpoint.
func serve(t *testing.T) string {
	t.Helper()
	s, err := server.Start(server.Config{
		Node: kvnode.Config{Name: "m1", DataDir: filepath.Join(t.TempDir(), "data"), Listener: listen(t)}, ClientListener: listen(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("kvnode is not ready")
	}
	return s.ClientAddrs()[0]
}

func connected(t *testing.T, endpoint string) *Conns {
	t.Helper()
	c, err := Dial([]string{endpoint}, 300, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEachModeIsServedByItsPath(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	endpoint := serve(t)
	roles, err := Find(t.Context(), nil, []string{endpoint})
	if err != nil || roles.Leader != endpoint || roles.Follower != "" {
		t.Fatalf("Find() = %+v, %v, want %s to lead alone", roles, err, endpoint)
	}
	c := connected(t, endpoint)
	if len(c.clients) != 3 {
		t.Errorf("%d connections for 300 requests, want 3", len(c.clients))
	}
	fill := Fill{Endpoint: endpoint, Keys: 150, Versions: 1, ValueLen: 8, Clients: 2, PerTxn: 100}
	if _, err := fill.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[Mode]load.Path{
		ByLease: load.PathLease, ByReadIndex: load.PathReadIndex, ByLog: load.PathLog, Serializable: load.PathSerializable,
	} {
		client := c.Reader(mode).Client(0)
		version, err := client.Write(t.Context(), 149)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := client.Read(t.Context(), 149)
		if err != nil || seen.Version != version || seen.Path != want {
			t.Errorf("Read() in mode %+v = %+v, %v, want version %d by %v", mode, seen, err, version, want)
		}
	}
	if seen, err := c.Reader(Auto).Client(1).Read(t.Context(), 0); err != nil || seen.Version == 0 {
		t.Errorf("Read() of a key that Fill wrote = %+v, %v", seen, err)
	}
}

// liar is an etcd server that serves everything from nowhere and says what it is
// told to say about it.
type liar struct {
	pb.UnimplementedKVServer
	trailer metadata.MD
}

func (l *liar) Range(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, grpc.SetTrailer(ctx, l.trailer)
}

func lie(t *testing.T, trailer metadata.MD) (endpoint string) {
	t.Helper()
	return startFake(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, &liar{trailer: trailer})
	})
}

// startFake serves what register registers, and returns the endpoint.
func startFake(t *testing.T, register func(*grpc.Server)) (endpoint string) {
	t.Helper()
	s, l := grpc.NewServer(), listen(t)
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		// A test that is over at once can stop the server before it serves.
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestALeaseReadMustSayForHowLong(t *testing.T) {
	for _, c := range []struct {
		name    string
		trailer metadata.MD
		want    load.Path
		err     error
	}{
		{"both trailers", metadata.Pairs(kvnodeclient.TrailerReadPath, "lease", kvnodeclient.TrailerRemaining, "5"), load.PathLease, nil},
		{"only the path", metadata.Pairs(kvnodeclient.TrailerReadPath, "lease"), 0, ErrTrailer},
		{"another path", metadata.Pairs(kvnodeclient.TrailerReadPath, "serializable"), load.PathSerializable, nil},
		{"no trailer, as etcd", nil, load.PathUnknown, nil},
	} {
		seen, err := connected(t, lie(t, c.trailer)).Reader(ByLease).Client(0).Read(t.Context(), 0)
		if !errors.Is(err, c.err) || seen.Path != c.want {
			t.Errorf("%s: Read() = %+v, %v, want path %v, %v", c.name, seen, err, c.want, c.err)
		}
	}
}

func TestFindNeedsEndpoints(t *testing.T) {
	if _, err := Find(t.Context(), nil, nil); err == nil {
		t.Error("Find() of no endpoints succeeds")
	}
}
