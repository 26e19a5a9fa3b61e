package server

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/fastkv"
)

// ephemeral returns a listener on a port that other processes are unlikely to take before the
// test binds it again.
func ephemeral(t *testing.T) net.Listener {
	t.Helper()
	l, err := testcluster.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// calmElection is the members' election timeout. With the default, a busy machine that pauses for
// a second would replace the leader, and a single request of a test would fail. The first
// election does not wait for it.
const calmElection = 5 * time.Second

// smallSegment is the size of the members' log segments. A start writes a segment, and reads it when
// it opens the log, which with -race takes 0.3 s of CPU time for one of the default size.
const smallSegment = 1 << 20

// elects sets the members' election timeout.
func elects(after time.Duration) func(*Config) {
	return func(c *Config) { c.Node.ElectionTimeout = after }
}

// trio starts three members and stops them after the test.
func trio(t *testing.T, change ...func(*Config)) []*Server {
	t.Helper()
	configs := make([]Config, 3)
	var cluster []kvnode.Member
	for i := range configs {
		c := &configs[i]
		c.Node.Name = fmt.Sprintf("m%d", i)
		c.Node.DataDir, c.Node.SegmentSize, c.Node.ElectionTimeout = t.TempDir(), smallSegment, calmElection
		c.Node.Listener, c.ClientListener, c.HTTPListener = ephemeral(t), ephemeral(t), ephemeral(t)
		cluster = append(cluster, kvnode.Member{Name: c.Node.Name, PeerURLs: []string{listenerURL(c.Node.Listener, "")}})
	}
	all := make([]*Server, len(configs))
	for i, c := range configs {
		c.Node.Cluster = cluster
		for _, f := range change {
			f(&c)
		}
		s, err := Start(c)
		if err != nil {
			t.Fatalf("Start(%s): %v", c.Node.Name, err)
		}
		t.Cleanup(func() { stop(t, s) })
		all[i] = s
	}
	for _, s := range all {
		await(t, s.cfg.Node.Name+" is ready", s.Ready())
	}
	return all
}

// solo starts a cluster of one.
func solo(t *testing.T, change ...func(*Config)) *Server {
	t.Helper()
	c := Config{Node: kvnode.Config{DataDir: t.TempDir(), SegmentSize: smallSegment, Listener: ephemeral(t)}, ClientListener: ephemeral(t), HTTPListener: ephemeral(t)}
	for _, f := range change {
		f(&c)
	}
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	await(t, "ready", s.Ready())
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	// t.Context has ended when clean-ups run.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("Stop(%s) = %v, want nil", s.cfg.Node.Name, err)
	}
}

// await waits for real goroutines on real sockets, so the time is generous.
func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%v have passed, want that %s", patience, what)
	}
}

func client(t *testing.T, servers ...*Server) *clientv3.Client {
	t.Helper()
	return clientWith(t, nil, servers...)
}

func clientWith(t *testing.T, opts []grpc.DialOption, servers ...*Server) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, s := range servers {
		endpoints = append(endpoints, s.ClientAddrs()...)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, DialOptions: opts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if streamed {
		if err := fastkv.Use(c); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// streamed makes clients use fastkv.
var streamed bool

func dial(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.ClientAddrs()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// leader waits for a leader, and returns it and the others.
func leader(t *testing.T, all []*Server) (lead *Server, others []*Server) {
	t.Helper()
	until(t, "one of the members leads", func() bool {
		i := slices.IndexFunc(all, func(s *Server) bool { return s.Node().Leader() == s.Node().ID() })
		if i >= 0 {
			lead, others = all[i], slices.Delete(slices.Clone(all), i, i+1)
		}
		return i >= 0
	})
	return lead, others
}

// until waits for a condition without a channel.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v have passed, want that %s", patience, what)
		}
	}
}

// patience is the timeout for events that must happen, so long that only a real failure exceeds
// it.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patientStop gives requests in progress more time during a stop, for tests in which none may be
// cut off: a busy machine may need longer than drainTime. Call it before the members start.
func patientStop(t *testing.T) {
	t.Helper()
	before := drainTime
	drainTime = patience / 2
	t.Cleanup(func() { drainTime = before })
}

// skipShort skips a test that waits for seconds of real time. make verify runs it.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("waits for seconds of real time")
	}
}

// Members of one process may share options: each adds its own certificate to a copy.
func TestOptionsOfTheCallerStayItsOwn(t *testing.T) {
	dial := make([]grpc.DialOption, 1)
	dial[0] = grpc.EmptyDialOption{}
	trio(t, newFiles(t).mutual, func(c *Config) { c.API.MemberDialOptions = dial[:0] })
	if _, ok := dial[0].(grpc.EmptyDialOption); !ok {
		t.Errorf("behind the caller's options stands %T, want what was there", dial[0])
	}
}
