package kvnode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal/fs"
)

// slowStage takes its time for a snapshot that is to be restored.
type slowStage struct {
	store.Backend
	takes time.Duration
}

func (b slowStage) Stage(path string) (store.Staged, error) {
	time.Sleep(b.takes)
	return b.Backend.Stage(path)
}

// lagging is a cluster in which a snapshot takes ten seconds, and to restore it half a second.
type lagging struct {
	*cluster
	leader *Node
	index  uint64 // how far the leader was when the snapshot was sent
	away   atomic.Pointer[string]
}

const (
	storedBytes = 512 << 10
	everyEntry  = 20 // checkpoints
)

// inLagging runs f when the snapshot is on its way to a follower.
func inLagging(t *testing.T, kept int64, f func(t *testing.T, c *lagging, back *Node)) {
	t.Helper()
	c := new(lagging)
	amend := func(cfg *Config) {
		cfg.SnapshotCount, cfg.CatchUpEntries, cfg.maxKept = everyEntry, 5, kept
		cfg.walFS = fs.NewMemory()
		cfg.wrapBackend = func(b store.Backend) store.Backend { return slowStage{b, time.Second / 2} }
		fast, narrow := cfg.Dial, *cfg
		slow(&narrow, storedBytes/10)
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if away := c.away.Load(); away != nil && strings.Contains(addr, *away) {
				return narrow.Dial(ctx, addr)
			}
			return fast(ctx, addr)
		}
	}
	inCluster(t, 3, amend, func(t *testing.T, all *cluster) {
		c.cluster, c.leader = all, all.leader()
		for i := range storedBytes >> 16 {
			value := make([]byte, 1<<16)
			for j := range value {
				value[j] = byte(rand.Uint32())
			}
			c.put(c.leader, fmt.Sprint("large", i), string(value))
		}
		away := c.followers(c.leader)[0].Name()
		c.stop(away)
		c.away.Store(&away)
		for range 3 * everyEntry {
			c.put(c.leader, "k", "v")
		}
		c.index = c.leader.Store().Applied()
		back := c.start(away)
		for sent := 0; sent == 0; time.Sleep(10 * time.Millisecond) {
			sent, _ = ask(t.Context(), &c.leader.calls, func(l *raftLoop) int { return len(l.laggards) })
		}
		f(t, c, back)
	})
}

// snapshotsSent counts those that n has sent to anybody.
func snapshotsSent(n *Node) (sent uint64) {
	for _, p := range n.links.Peers() {
		for _, s := range p.Streams {
			if s.Name == "snapshot" {
				sent += s.Sent
			}
		}
	}
	return sent
}

// write writes to the leader until the function that it returns is called: some 2.5 checkpoints a
// second.
func (c *lagging) write() (end func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Second / (2.5 * everyEntry)) {
			if err := put(ctx, c.leader, "k", "v"); err != nil && ctx.Err() == nil {
				c.t.Errorf("put: %v", err)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// A snapshot takes longer than the cluster needs for many checkpoints, and what is written
// meanwhile, too. The follower goes on by the log: one snapshot after the other would never bring
// it to the present.
func TestTheLogOutlastsASnapshotOnItsWay(t *testing.T) {
	inLagging(t, 0, func(t *testing.T, c *lagging, back *Node) {
		defer c.write()()
		c.appliedWithin(2*time.Minute, back, c.leader)
		if passed := c.leader.Store().Applied() - c.index; passed < 25*everyEntry {
			t.Errorf("%d entries were written meanwhile, want those of many checkpoints", passed)
		}
		if n := snapshotsSent(c.leader); n != 1 {
			t.Errorf("%d snapshots were sent, want one", n)
		}
		time.Sleep(5 * time.Second)
		if first, _ := c.leader.wal.FirstIndex(); first < c.leader.Store().Applied()-3*everyEntry {
			t.Errorf("the log begins at %d of %d, want it as short as before once all follow", first, c.leader.Store().Applied())
		}
	})
}

// Once the log has written more than the store is large, another snapshot costs less.
func TestTheLogIsNotKeptForever(t *testing.T) {
	inLagging(t, 1, func(t *testing.T, c *lagging, _ *Node) {
		// It is not stored: its condition does not hold.
		txn := &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("k"), Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: -1}}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<14)}}}},
		}
		for n := range 8 * storedBytes >> 14 {
			if _, err := c.leader.Propose(t.Context(), &pb.InternalRaftRequest{Txn: txn}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // until a checkpoint that is due is made
			if first, _ := c.leader.wal.FirstIndex(); first <= c.index+1 {
				continue
			}
			if n<<14 < storedBytes {
				t.Errorf("the log forgets what a follower needs after %d bytes, want %d at least", n<<14, storedBytes)
			}
			return
		}
		t.Errorf("the log keeps all since %d, want it to forget what is more than the store, of %d bytes", c.index, storedBytes)
	})
}

// A follower that is removed while it lags keeps the log no longer.
func TestARemovedFollowerIsNoLaggard(t *testing.T) {
	inLagging(t, 0, func(t *testing.T, c *lagging, back *Node) {
		if err := c.leader.RemoveMember(t.Context(), back.ID()); err != nil {
			t.Fatal(err)
		}
		for range 2 * everyEntry { // a checkpoint, which asks what is needed
			c.put(c.leader, "k", "v")
		}
		time.Sleep(time.Second)
		if n := c.leader.checkpoints.lag.Load(); n != 0 {
			t.Errorf("%d followers keep the log, want none", n)
		}
	})
}

// Small entries stay in the log by their bytes: a follower that missed many of them needs no
// snapshot.
func TestSmallEntriesStayByTheirBytes(t *testing.T) {
	amend := func(cfg *Config) { cfg.SnapshotCount, cfg.CatchUpEntries, cfg.CatchUpBytes = 50, 10, 1<<20 }
	inCluster(t, 1, amend, func(t *testing.T, c *cluster) {
		leader := c.leader()
		const n = 200
		for range n {
			c.put(leader, "k", "v")
		}
		checkpointed(t, leader)
		if first, _ := leader.wal.FirstIndex(); first > 10 {
			t.Errorf("the log begins at %d after %d small entries, want all of them", first, n)
		}
	})
}

func TestDefaultsOfWhatStaysInTheLog(t *testing.T) {
	for _, test := range []struct{ give, want Config }{
		{Config{}, Config{CatchUpEntries: 5000, CatchUpBytes: 16 << 20}},
		{Config{CatchUpEntries: 5000}, Config{CatchUpEntries: 5000, CatchUpBytes: 16 << 20}}, // as the flag's default is given
		{Config{CatchUpEntries: 100}, Config{CatchUpEntries: 100}},
		{Config{CatchUpEntries: 100, CatchUpBytes: 1 << 20}, Config{CatchUpEntries: 100, CatchUpBytes: 1 << 20}},
	} {
		got := test.give.WithDefaults()
		if got.CatchUpEntries != test.want.CatchUpEntries || got.CatchUpBytes != test.want.CatchUpBytes {
			t.Errorf("with %d entries and %d bytes, %d and %d stay, want %d and %d", test.give.CatchUpEntries, test.give.CatchUpBytes,
				got.CatchUpEntries, got.CatchUpBytes, test.want.CatchUpEntries, test.want.CatchUpBytes)
		}
	}
}
