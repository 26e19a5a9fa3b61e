package kvnode

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

// startAlone starts a cluster of one over real files and waits until it leads.
func startAlone(tb testing.TB, amend ...func(*Config)) *Node {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	cfg := Config{
		Name: "n1", DataDir: filepath.Join(tb.TempDir(), "data"), Listener: l, SegmentSize: 256 << 10,
		Cluster: []Member{{Name: "n1", PeerURLs: []string{"http://" + l.Addr().String()}}},
	}
	for _, f := range amend {
		f(&cfg)
	}
	n, err := Start(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = n.Stop(tb.Context()) })
	if _, err := n.Read(tb.Context(), ReadLease); err != nil {
		tb.Fatal(err)
	}
	return n
}

// cluster is a cluster over real files and a network in memory, for use in a
// synctest bubble.
type cluster struct {
	t     *testing.T
	net   *memlink.Network
	cfgs  map[string]Config
	nodes map[string]*Node
}

// inCluster runs f in a bubble with n fresh members, m1 and so on, and stops
// them afterwards.
func inCluster(t *testing.T, n int, amend func(*Config), f func(t *testing.T, c *cluster)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: memlink.New(), cfgs: make(map[string]Config), nodes: make(map[string]*Node)}
		var members []Member
		for i := range n {
			name := fmt.Sprintf("m%d", i+1)
			members = append(members, Member{Name: name, PeerURLs: []string{"http://" + name + ":2380"}})
		}
		for _, m := range members {
			cfg := Config{
				Name: m.Name, DataDir: filepath.Join(dir, m.Name), Cluster: members,
				ClientURLs: []string{"http://" + m.Name + ":2379"}, Dial: c.net.Dialer(m.Name),
				Clock: clock.Runtime(), SegmentSize: 256 << 10,
				LeaseDuration: shortPromise, // as where the clock counts suspend
			}
			if amend != nil {
				amend(&cfg)
			}
			c.cfgs[m.Name] = cfg
			c.start(m.Name)
		}
		defer c.stopAll()
		f(t, c)
	})
}

func (c *cluster) start(name string) *Node {
	c.t.Helper()
	n, err := c.tryStart(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) tryStart(name string) (*Node, error) {
	c.t.Helper()
	l, err := c.net.Listen(name + ":2380")
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := c.cfgs[name]
	cfg.Listener = l
	n, err := Start(cfg)
	if err == nil {
		c.nodes[name] = n
	}
	return n, err
}

func (c *cluster) stopAll() {
	c.net.HealAll()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // without a transfer
	for _, n := range c.nodes {
		_ = n.Stop(ctx)
	}
}

// stop stops a member as its process would end on a signal.
func (c *cluster) stop(name string) {
	c.t.Helper()
	if err := c.nodes[name].Stop(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	delete(c.nodes, name)
}

// leader waits until all members that run, but for those given, agree on one of
// them that can read.
func (c *cluster) leader(except ...*Node) *Node {
	c.t.Helper()
	for range 1000 {
		var leader *Node
		votes := 0
		for _, n := range c.nodes {
			if slices.Contains(except, n) {
				continue
			}
			for _, l := range c.nodes {
				if n.Leader() == l.ID() && !slices.Contains(except, l) && (leader == nil || leader == l) {
					leader = l
					votes++
				}
			}
		}
		if leader != nil && votes == len(c.nodes)-len(except) {
			if _, err := leader.Read(c.t.Context(), ReadLease); err == nil {
				return leader
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatal("no leader in 10 s")
	return nil
}

// followers returns the members that run and are not n.
func (c *cluster) followers(n *Node) (others []*Node) {
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		if c.nodes[name] != n {
			others = append(others, c.nodes[name])
		}
	}
	return others
}

func put(ctx context.Context, n *Node, key, value string) error {
	r, err := n.Propose(ctx, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}})
	if err != nil {
		return err
	}
	return r.Err
}

func (c *cluster) put(n *Node, key, value string) {
	c.t.Helper()
	if err := put(c.t.Context(), n, key, value); err != nil {
		c.t.Fatalf("put %s=%s: %v", key, value, err)
	}
}

// get reads key in that mode, and returns the path that served it.
func (c *cluster) get(n *Node, mode ReadMode, key string) (value, path string) {
	c.t.Helper()
	r, err := n.Read(c.t.Context(), mode)
	if err != nil {
		c.t.Fatalf("Read(%v) on %s: %v", mode, n.Name(), err)
	}
	kv, _ := n.Store().Get([]byte(key))
	return string(kv.GetValue()), r.Path
}

// isolate cuts n off from everyone.
func (c *cluster) isolate(n *Node) {
	for name := range c.nodes {
		if name != n.Name() {
			c.net.Cut(n.Name(), name)
		}
	}
}

func (c *cluster) leaseStatus(n *Node) leaderlease.Status {
	_, s := n.Lease().TryRead()
	return s
}

// queued returns the number of n's proposals that raft has not taken, and of messages that followers have
// forwarded.
func (n *Node) queued() (count int) {
	n.call(func() { count = n.loop.queue.Len() })
	return count
}

// propMessage proposes entries for the present term.
func propMessage(from uint64, entries ...*raftpb.Entry) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(from), Entries: entries}
}

// call runs f in n's loop and waits for its end.
func (n *Node) call(f func()) bool { return n.calls.do(func(*raftLoop) { f() }) }

func asTTLMember(n *Node) ttlMember {
	return ttlMember{n.leadership, n.lease, n.proposals, n.disk.IsStalled}
}
