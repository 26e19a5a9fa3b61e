package concurrency

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
	epb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
	"github.com/leaderlease/go/leaderlease/clock"
)

// valCtxCh is a channel of etcd's client that its watches wait for without effect.
// synctest does not treat a goroutine as idle that waits for a channel of another bubble.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

// member is one member with both services, and client stubs for it.
type member struct {
	*kvnode.Node
	services *Services
	end      context.CancelFunc // ends all waits
	grpc     *grpc.Server
	conn     *grpc.ClientConn
	served   chan struct{}

	lock     lpb.LockClient
	election epb.ElectionClient
	kv       pb.KVClient
	lease    pb.LeaseClient
}

// cluster is a cluster with real files and an in-memory network, in virtual time.
type cluster struct {
	*testing.T
	net     *memlink.Network
	cfg     etcdapi.Config
	members []*member
}

// inCluster runs f with n members that know their leader.
func inCluster(t *testing.T, n int, f func(t *testing.T, c *cluster), amend ...func(*etcdapi.Config)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		valCtxCh = make(chan struct{})
		c := &cluster{T: t, net: memlink.New(), cfg: etcdapi.Config{WaitingMethods: Waiting}}
		for _, f := range amend {
			f(&c.cfg)
		}
		var all []kvnode.Member
		for i := range n {
			name := fmt.Sprintf("m%d", i+1)
			all = append(all, kvnode.Member{Name: name, PeerURLs: []string{"http://" + name + ":2380"}})
		}
		for _, m := range all {
			c.start(m.Name, filepath.Join(dir, m.Name), all)
		}
		defer c.stop()
		for _, m := range c.members {
			_, err := m.Read(t.Context(), kvnode.ReadLease)
			// The first election of a cluster of one may take as long as the read waits.
			if errors.Is(err, kvnode.ErrNoLeader) || errors.Is(err, kvnode.ErrTimeout) {
				_, err = m.Read(t.Context(), kvnode.ReadLease)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		f(t, c)
	})
}

func (c *cluster) start(name, dir string, all []kvnode.Member) {
	c.Helper()
	peers, err := c.net.Listen(name + ":2380")
	must(c, err)
	node, err := kvnode.Start(kvnode.Config{
		Name: name, DataDir: dir, Cluster: all, Listener: peers, Dial: c.net.Dialer(name),
		Clock: clock.Runtime(), SegmentSize: 256 << 10,
	})
	must(c, err)
	m := &member{Node: node, served: make(chan struct{})}
	stopping, end := context.WithCancel(c.Context())
	m.end = end
	m.services, err = New(stopping, node, c.cfg)
	must(c, err)
	m.grpc = grpc.NewServer(etcdapi.New(node, c.cfg).ServerOptions()...)
	m.services.Register(m.grpc)
	listener := bufconn.Listen(1 << 16)
	go func() {
		defer close(m.served)
		_ = m.grpc.Serve(listener)
	}()
	m.conn, err = grpc.NewClient("passthrough:///"+name, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	must(c, err)
	m.lock, m.election = lpb.NewLockClient(m.conn), epb.NewElectionClient(m.conn)
	// Other requests go to the internal API.
	inside := m.services.client.ActiveConnection()
	m.kv, m.lease = pb.NewKVClient(inside), pb.NewLeaseClient(inside)
	c.members = append(c.members, m)
}

// stop stops all members as package server does, but without waiting.
func (c *cluster) stop() {
	c.net.HealAll()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no transfer of leadership
	for _, m := range c.members {
		_ = m.conn.Close()
		m.end()
		m.grpc.Stop()
		<-m.served
		must(c, m.services.Close())
		_ = m.Stop(ctx)
	}
}

// leader returns the leader and another member.
func (c *cluster) leader() (leader, follower *member) {
	c.Helper()
	for _, m := range c.members {
		if m.Leader() == m.ID() {
			leader = m
			continue
		}
		follower = m
	}
	if leader == nil {
		c.Fatal("no member leads")
	}
	return leader, follower
}

// grant grants a TTL lease without keep-alives.
func (c *cluster) grant(ttl int64) int64 {
	c.Helper()
	resp, err := c.members[0].lease.LeaseGrant(c.Context(), &pb.LeaseGrantRequest{TTL: ttl})
	must(c, err)
	return resp.GetID()
}

// leases returns how many TTL leases there are.
func (c *cluster) leases() int {
	c.Helper()
	resp, err := c.members[0].lease.LeaseLeases(c.Context(), new(pb.LeaseLeasesRequest))
	must(c, err)
	return len(resp.GetLeases())
}

// keys returns all keys, oldest first.
func (c *cluster) keys() (keys []string) {
	c.Helper()
	resp, err := c.members[0].kv.Range(c.Context(), &pb.RangeRequest{
		Key: []byte{0}, RangeEnd: []byte{0}, SortTarget: pb.RangeRequest_CREATE,
	})
	must(c, err)
	for _, kv := range resp.GetKvs() {
		keys = append(keys, string(kv.GetKey()))
	}
	return keys
}

// waits runs f until it blocks, and returns a channel for its result.
func waits[T any](c *cluster, f func() (T, error)) <-chan answer[T] {
	c.Helper()
	answered := make(chan answer[T], 1)
	go func() {
		v, err := f()
		answered <- answer[T]{v, err}
	}()
	settle()
	select {
	case a := <-answered:
		c.Fatalf("answer = %v, %v, want it to wait", a.v, a.err)
	default:
	}
	return answered
}

type answer[T any] struct {
	v   T
	err error
}

// settle gives work in progress time to finish.
func settle() { time.Sleep(200 * time.Millisecond) }

// lockBy locks with a TTL lease.
func lockBy(ctx context.Context, m *member, lease int64) func() (*lpb.LockResponse, error) {
	return func() (*lpb.LockResponse, error) {
		return m.lock.Lock(ctx, &lpb.LockRequest{Name: []byte("l"), Lease: lease})
	}
}

// campaignBy campaigns with a TTL lease.
func campaignBy(ctx context.Context, m *member, lease int64, value string) func() (*epb.CampaignResponse, error) {
	return func() (*epb.CampaignResponse, error) {
		return m.election.Campaign(ctx, &epb.CampaignRequest{Name: []byte("e"), Lease: lease, Value: []byte(value)})
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantError fails unless err has this code and text.
func wantError(tb testing.TB, what string, err error, code codes.Code, text string) {
	tb.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != text {
		tb.Errorf("%s = %v, want %v %q", what, err, code, text)
	}
}

func textOf(err error) string { return rpctypes.ErrorDesc(err) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
