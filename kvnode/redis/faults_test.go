package redis_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/fastkv"
	"github.com/leaderlease/go/kvnode/redis"
	"github.com/leaderlease/go/kvnode/server"
)

// trio is a cluster of three members. Their clients use TCP, and they are connected to each other in memory.
type trio struct {
	t       *testing.T
	net     *memlink.Network
	configs [3]server.Config
	addrs   [3]string // for clients
	members [3]*server.Server

	mu    sync.Mutex
	conns []net.Conn // of the clients
}

func startTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{t: t, net: memlink.New()}
	members := slices.Grow(c.configs[0].Node.Cluster, 3)[:3]
	for i := range members {
		members[i].Name, members[i].PeerURLs = host(i), []string{"http://" + host(i) + ":2380"}
	}
	for i := range c.configs {
		c.configs[i].AllowPlaintext = true
		n := &c.configs[i].Node
		n.Name, n.DataDir, n.SegmentSize, n.Cluster, n.Dial = host(i), t.TempDir(), 1<<20, members, c.net.Dialer(host(i))
		c.addrs[i] = "127.0.0.1:0"
		c.start(i)
	}
	t.Cleanup(func() {
		c.net.HealAll()
		for i := range c.members {
			c.stop(i)
		}
	})
	for i := range c.members {
		c.ready(i)
	}
	return c
}

func host(i int) string { return fmt.Sprint("m", i) }

// start starts a member at its address.
func (c *trio) start(i int) {
	c.t.Helper()
	cfg := c.configs[i]
	var err error
	if cfg.Node.Listener, err = c.net.Listen(host(i) + ":2380"); err != nil {
		c.t.Fatal(err)
	}
	if c.members[i] == nil {
		cfg.ClientListener, err = testcluster.Listen(c.t.Context())
	} else {
		cfg.ClientListener, err = net.Listen("tcp", c.addrs[i])
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.addrs[i] = cfg.ClientListener.Addr().String()
	cfg.HTTPListener = listen(c.t)
	if c.members[i], err = server.Start(cfg); err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) ready(i int) {
	c.t.Helper()
	select {
	case <-c.members[i].Ready():
	case <-time.After(patience):
		c.t.Fatalf("%s does not get ready", host(i))
	}
}

// stop ends a member without a transfer of leadership.
func (c *trio) stop(i int) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.members[i].Stop(ctx) // it says that requests were cut off
}

// leader waits for a leader among the members that are given.
func (c *trio) leader(among ...int) int {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		for _, i := range among {
			if n := c.members[i].Node(); n.Leader() == n.ID() {
				return i
			}
		}
	}
	c.t.Fatal("there is no leader")
	return 0
}

// isolate cuts a member off from the others.
func (c *trio) isolate(i int) {
	for _, j := range others(i) {
		c.net.Cut(host(i), host(j))
	}
}

func others(i int) []int { return []int{(i + 1) % 3, (i + 2) % 3} }

// client returns a client of some members.
func (c *trio) client(byStreams bool, members ...int) *clientv3.Client {
	c.t.Helper()
	var endpoints []string
	for _, i := range members {
		endpoints = append(endpoints, c.addrs[i])
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: patience, DialOptions: []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err == nil {
				c.mu.Lock()
				c.conns = append(c.conns, conn)
				c.mu.Unlock()
			}
			return conn, err
		}),
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	if byStreams {
		if err := fastkv.Use(client); err != nil {
			c.t.Fatal(err)
		}
	}
	return client
}

// reset ends all connections of the clients.
func (c *trio) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// impatient is a gateway's time limit for its requests, so that a connection to a member that cannot answer goes on.
func impatient(cfg *redis.Config) { cfg.Timeout = time.Second }

// TestLinearizable runs clients of three gateways while the leader is stopped, is cut off from the other members, and
// the gateways lose their connections. An order of all operations must explain all replies.
func TestLinearizable(t *testing.T) {
	c := startTrio(t)
	gateways := []string{
		startGateway(t, c.client(true, 0, 1, 2), impatient),
		startGateway(t, c.client(false, 1), impatient),
		startGateway(t, c.client(true, 2), impatient),
	}
	rounds, writes := 1, int64(30)
	if !testing.Short() {
		rounds, writes = 4, 100
	}
	// Each fault ends before the round does.
	faults := map[string]func(h *history, leader int){
		"stop": func(h *history, leader int) {
			c.stop(leader)
			c.leader(others(leader)...)
			h.start() // all others may have ended
			until(t, "writes while the leader is stopped", &h.written, writes)
			c.start(leader)
			c.ready(leader)
		},
		"cut": func(h *history, leader int) {
			c.isolate(leader)
			c.leader(others(leader)...)
			h.start()
			until(t, "writes while the leader is cut off", &h.written, writes)
			c.net.HealAll()
		},
		"reset": func(h *history, _ int) {
			c.reset()
		},
	}
	for i := range rounds {
		for name, fault := range faults {
			h := inLoad(t, fmt.Sprint(name, i), gateways, func(h *history) {
				until(t, "operations before the fault", &h.written, writes)
				fault(h, c.leader(0, 1, 2))
				h.start()
				until(t, "writes after the fault", &h.written, writes)
			})
			if got := h.judge(); got != porcupine.Ok {
				t.Errorf("%s: %s, want an order of the operations", h.round, got)
			}
		}
	}
}

// repeating is a KV that takes one in ten writes for not applied, so that its gateway repeats it.
type repeating struct {
	clientv3.KV

	writes atomic.Int64
}

func (kv *repeating) Txn(ctx context.Context) clientv3.Txn { return &repeatingTxn{kv.KV.Txn(ctx), kv} }

type repeatingTxn struct {
	clientv3.Txn

	kv *repeating
}

func (x *repeatingTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	return &repeatingTxn{x.Txn.If(cs...), x.kv}
}

func (x *repeatingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return &repeatingTxn{x.Txn.Then(ops...), x.kv}
}

func (x *repeatingTxn) Commit() (*clientv3.TxnResponse, error) {
	got, err := x.Txn.Commit()
	if err == nil && got.Succeeded && got.Responses[0].GetResponsePut() != nil && x.kv.writes.Add(1)%10 == 0 {
		got.Succeeded = false
	}
	return got, err
}

// TestARepeatedWriteIsFound is a negative control of TestLinearizable: a gateway repeats writes with a lost answer.
func TestARepeatedWriteIsFound(t *testing.T) {
	etcd := startCluster(t)
	gateway := startGateway(t, etcd, func(cfg *redis.Config) { cfg.KV = &repeating{KV: etcd.KV} })
	h := inLoad(t, "repeated", []string{gateway}, func(h *history) { until(t, "writes", &h.written, 50) })
	if h.judge() != porcupine.Illegal {
		t.Error("repeated writes are not found")
	}
}

// serializable is a KV that makes reads serializable.
type serializable struct{ clientv3.KV }

func (kv serializable) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return kv.KV.Get(ctx, key, append(opts, clientv3.WithSerializable())...)
}

// TestASerializableReadIsFound is a negative control of TestLinearizable: a gateway at a member that is cut off reads
// what this member has.
func TestASerializableReadIsFound(t *testing.T) {
	c := startTrio(t)
	behind := others(c.leader(0, 1, 2))[0]
	etcd := c.client(false, behind)
	stale := startGateway(t, etcd, impatient, func(cfg *redis.Config) { cfg.KV = serializable{etcd.KV} })
	good := startGateway(t, c.client(true, others(behind)...), impatient)
	h := inLoad(t, "stale", []string{good}, func(h *history) {
		until(t, "writes", &h.written, 50)
		c.isolate(behind)
		until(t, "writes", &h.written, 50)
		reader := dial(t, stale)
		call := time.Since(h.began)
		o := &operation{kind: "get", key: "n", reply: reader.try("GET", h.round+":n")}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, porcupine.Operation{ClientId: 100, Input: o, Call: call.Nanoseconds(), Return: time.Since(h.began).Nanoseconds()})
	})
	if h.judge() != porcupine.Illegal {
		t.Error("a stale read is not found")
	}
}
