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

	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal/fs"
)

// slowStage is a backend that needs some time to restore a snapshot.
type slowStage struct {
	store.Backend
	takes time.Duration
}

func (b slowStage) Stage(path string) (store.Staged, error) {
	time.Sleep(b.takes)
	return b.Backend.Stage(path)
}

const (
	stored        = 512 << 10 // bytes in the store
	snapshotCount = 20
)

// slowSnapshots makes a snapshot for the member that away names take ten seconds, and half a second to be restored.
func slowSnapshots(away *atomic.Pointer[string]) func(*Config) {
	return func(cfg *Config) {
		cfg.SnapshotCount, cfg.CatchUpEntries, cfg.walFS = snapshotCount, 5, fs.NewMemory()
		cfg.wrapBackend = func(b store.Backend) store.Backend { return slowStage{b, time.Second / 2} }
		fast, narrow := cfg.Dial, *cfg
		slow(&narrow, stored/10)
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if name := away.Load(); name != nil && strings.Contains(addr, *name) {
				return narrow.Dial(ctx, addr)
			}
			return fast(ctx, addr)
		}
	}
}

// A snapshot takes ten seconds on its way, and half a second to be restored. Meanwhile the leader makes
// many checkpoints. The log keeps what the follower needs afterwards, so one snapshot is enough.
func TestTheLogOutlastsASnapshot(t *testing.T) {
	var away atomic.Pointer[string]
	inCluster(t, 3, slowSnapshots(&away), func(t *testing.T, c *cluster) {
		leader := c.leader()
		for i := range stored >> 16 {
			value := make([]byte, 1<<16)
			for j := range value {
				value[j] = byte(rand.Uint32())
			}
			c.put(leader, fmt.Sprint("large", i), string(value))
		}
		name := c.followers(leader)[0].Name()
		c.stop(name)
		away.Store(&name)
		for range 3 * snapshotCount {
			c.put(leader, "k", "v")
		}
		before := leader.Store().Applied()
		back := c.start(name)
		inSnapshot := func(l *raftLoop) bool { return l.raw.Status().Progress[back.ID()].State == tracker.StateSnapshot }
		for sent := false; !sent; time.Sleep(10 * time.Millisecond) {
			sent, _ = ask(t.Context(), &leader.calls, inSnapshot)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		writer.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Second / (2.5 * snapshotCount)) {
				if err := put(ctx, leader, "k", "v"); err != nil && ctx.Err() == nil {
					t.Errorf("put: %v", err)
				}
			}
		})
		defer func() { cancel(); writer.Wait() }()
		c.appliedWithin(2*time.Minute, back, leader)
		if passed := leader.Store().Applied() - before; passed < 25*snapshotCount {
			t.Errorf("%d entries were written meanwhile, want those of 25 checkpoints", passed)
		}
		if n := snapshotsSent(leader); n != 1 {
			t.Errorf("%d snapshots were sent, want one", n)
		}
		time.Sleep(5 * time.Second)
		if first, _ := leader.wal.FirstIndex(); first < leader.Store().Applied()-3*snapshotCount {
			t.Errorf("the log begins at %d of %d, want it truncated once no follower is slow", first, leader.Store().Applied())
		}
	})
}

// snapshotsSent returns the number of snapshots that n has sent.
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
