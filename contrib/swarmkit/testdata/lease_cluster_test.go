package raft_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"code.cloudfoundry.org/clock"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/health"
	"github.com/moby/swarmkit/v2/manager/raftselector"
	"github.com/moby/swarmkit/v2/manager/state/raft"
	raftutils "github.com/moby/swarmkit/v2/manager/state/raft/testutils"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

const leaseTick = 50 * time.Millisecond

// manager is a raft node on real time and real sockets that can be cut off.
type manager struct {
	*raft.Node
	opts   raft.NodeOptions
	links  *links
	creds  *ca.SecurityConfig
	cancel context.CancelFunc
	server *grpc.Server
}

// links records which managers are cut off.
type links struct {
	mu  sync.Mutex
	cut map[string]bool // by address
}

func (l *links) set(addr string, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[addr] = cut
}

func (l *links) down(a, b string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[a] || l.cut[b]
}

// linked is transport credentials for connections that stand still while one of their
// ends is cut off. Bytes written meanwhile arrive when it no longer is.
type linked struct {
	credentials.TransportCredentials
	links *links
	from  string
}

func (c linked) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.TransportCredentials.ClientHandshake(ctx, authority, &link{Conn: raw, links: c.links, from: c.from})
}

func (c linked) Clone() credentials.TransportCredentials {
	return linked{c.TransportCredentials.Clone(), c.links, c.from}
}

type link struct {
	net.Conn
	links  *links
	from   string
	closed atomic.Bool
}

func (l *link) wait() {
	for !l.closed.Load() && l.links.down(l.from, l.RemoteAddr().String()) {
		time.Sleep(time.Millisecond)
	}
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.wait()
	return n, err
}

func (l *link) Write(b []byte) (int, error) {
	l.wait()
	return l.Conn.Write(b)
}

func (l *link) Close() error {
	l.closed.Store(true)
	return l.Conn.Close()
}

// frozen is a clock with tickers that can be stopped. Its time goes on.
type frozen struct {
	clock.Clock
	stopped atomic.Bool
}

type frozenTicker struct {
	clock.Ticker
	c chan time.Time
}

func (t frozenTicker) C() <-chan time.Time { return t.c }

func (f *frozen) NewTicker(d time.Duration) clock.Ticker {
	t := frozenTicker{f.Clock.NewTicker(d), make(chan time.Time)}
	go func() {
		for at := range t.Ticker.C() {
			if !f.stopped.Load() {
				select {
				case t.c <- at:
				case <-time.After(d):
				}
			}
		}
	}()
	return t
}

func newManager(t testing.TB, links *links, join string, lease bool) *manager {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	creds, err := tc.NewNodeConfig(ca.ManagerRole)
	require.NoError(t, err)
	addr := l.Addr().String()
	m := &manager{links: links, creds: creds}
	m.opts = raft.NodeOptions{
		ID: creds.ClientTLSCreds.NodeID(), Addr: addr, JoinAddr: join,
		Config: raft.DefaultNodeConfig(), TickInterval: leaseTick,
		StateDir: t.TempDir(), ClockSource: &frozen{Clock: clock.NewClock()},
		TLSCredentials: linked{creds.ClientTLSCreds, links, addr},
		KeyRotator:     raftutils.NewSimpleKeyRotator(raft.EncryptionKeys{CurrentDEK: []byte("current")}),
		LeaderLease:    lease,
	}
	m.start(t, l)
	return m
}

func (m *manager) start(t testing.TB, l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.Node = raft.NewNode(m.opts)
	m.server = grpc.NewServer(grpc.Creds(m.creds.ServerTLSCreds))
	h := health.NewHealthServer()
	api.RegisterHealthServer(m.server, h)
	raft.Register(m.server, m.Node)
	h.SetServingStatus("Raft", api.HealthCheckResponse_SERVING)
	go func() { _ = m.server.Serve(l) }()
	require.NoError(t, m.JoinAndStart(ctx))
	go func() { _ = m.Run(ctx) }()
}

func (m *manager) stop() {
	m.server.Stop()
	m.cancel()
	<-m.Done()
}

// restart starts a manager that was stopped, on its address and its directory.
func (m *manager) restart(t testing.TB) {
	var l net.Listener
	eventually(t, "an address is free", func() (err error) {
		l, err = net.Listen("tcp", m.opts.Addr)
		return err
	})
	m.opts.JoinAddr = ""
	m.start(t, l)
}

// isolate cuts a manager off the network. Its raft does not notice that time passes.
func (m *manager) isolate(yes bool) {
	m.links.set(m.opts.Addr, yes)
	m.opts.ClockSource.(*frozen).stopped.Store(yes)
}

// read is what an API request does that the leader serves.
func (m *manager) read(ctx context.Context, key string) (string, error) {
	// A connection to the leader, and no error, means that another manager is.
	if _, err := m.LeaderConn(ctx); err != raftselector.ErrIsLeader {
		return "", errors.Join(raft.ErrLostLeadership, err)
	}
	value := ""
	m.MemoryStore().View(func(tx store.ReadTx) {
		if n := store.GetNode(tx, key); n != nil {
			value = n.Spec.Annotations.Name
		}
	})
	return value, nil
}

func (m *manager) write(key, value string, kind api.StoreActionKind) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	actions := []api.StoreAction{{Action: kind, Target: &api.StoreAction_Node{Node: &api.Node{
		ID: key, Spec: api.NodeSpec{Annotations: api.Annotations{Name: value}},
	}}}}
	return m.ProposeValue(ctx, actions, func() { _ = m.MemoryStore().ApplyStoreActions(actions) })
}

// newManagers starts a group of three.
func newManagers(t testing.TB, lease bool) []*manager {
	links := &links{cut: make(map[string]bool)}
	all := []*manager{newManager(t, links, "", lease)}
	leader(t, all...)
	for range 2 {
		all = append(all, newManager(t, links, all[0].opts.Addr, lease))
	}
	t.Cleanup(func() {
		for _, m := range all {
			m.isolate(false)
			m.stop()
		}
	})
	return all
}

// leader waits for one of the managers to take writes.
func leader(t testing.TB, among ...*manager) (found *manager) {
	eventually(t, "a leader", func() error {
		for _, m := range among {
			if m.IsLeader() && m.ReadyForProposals() {
				found = m
				return nil
			}
		}
		return raft.ErrNoClusterLeader
	})
	return found
}

func eventually(t testing.TB, what string, done func() error) {
	t.Helper()
	var err error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(5 * time.Millisecond) {
		if err = done(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not in a minute: %v", what, err)
}
