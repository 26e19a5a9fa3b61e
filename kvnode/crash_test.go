package kvnode

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// crash ends members at one moment, as kill -9 does: what the next start finds is
// what was on the disk just then. The end of a Node writes more, as that of a Log
// does, which no crash waits for.
func (c *cluster) crash(nodes ...*Node) {
	c.t.Helper()
	c.end(nodes, (*fs.Memory).EndProcess)
}

// cutPower ends members at one moment, and what their logs had not synced is lost.
// It is for members with disks.
func (c *cluster) cutPower(nodes ...*Node) {
	c.t.Helper()
	c.end(nodes, func(m *fs.Memory) *fs.Memory { return m.Crash(fs.Nothing, nil) })
}

// end replaces the disks of nodes by what left says of them, and their directories by
// what they held before the nodes stopped.
func (c *cluster) end(nodes []*Node, left func(*fs.Memory) *fs.Memory) {
	c.t.Helper()
	// The peers must not receive messages from after the copy.
	for _, n := range nodes {
		_ = n.links.Close()
	}
	synctest.Wait()
	for _, n := range nodes {
		if err := os.CopyFS(n.cfg.DataDir+".left", os.DirFS(n.cfg.DataDir)); err != nil {
			c.t.Fatal(err)
		}
		if disk, ok := n.cfg.walFS.(*fs.Memory); ok {
			cfg := c.cfgs[n.Name()]
			cfg.walFS = left(disk)
			c.cfgs[n.Name()] = cfg
		}
	}
	for _, n := range nodes {
		n.life.Fail(errors.New("crash"))
		wantEnd(c.t, n)
		if err := errors.Join(os.RemoveAll(n.cfg.DataDir), os.Rename(n.cfg.DataDir+".left", n.cfg.DataDir)); err != nil {
			c.t.Fatal(err)
		}
		delete(c.nodes, n.Name())
	}
}

func TestRestartReplaysTheLog(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		for range 20 {
			c.put(n, "k", "v")
		}
		if at := n.Store().Durable().Index; at != 0 {
			t.Fatalf("a checkpoint of index %d was made, want none", at)
		}
		c.crash(n)
		n = c.start("m1")
		if value, _ := c.get(n, ReadLease, "k"); value != "v" {
			t.Errorf("k = %q after replay, want v", value)
		}
		if kv, _ := n.Store().Get([]byte("k")); kv.GetVersion() != 20 {
			t.Errorf("k has version %d after replay, want 20: entries are applied once", kv.GetVersion())
		}
	})
}

// The store is durable and the log has not heard of it.
func TestCrashBetweenCheckpointAndLog(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "1")
		at, err := n.store.SaveCheckpoint(func(uint64) error { return n.wal.Flush() })
		if err != nil {
			t.Fatal(err)
		}
		c.put(n, "k", "2")
		c.crash(n)
		n = c.start("m1")
		if value, _ := c.get(n, ReadLease, "k"); value != "2" {
			t.Errorf("k = %q, want 2", value)
		}
		if snap, err := n.wal.Snapshot(); err != nil || snap.GetMetadata().GetIndex() != at.Index {
			t.Errorf("the log's snapshot is %v, %v, want index %d", snap, err, at.Index)
		}
	})
}

// The log begins at a snapshot whose state has not reached the store.
func TestCrashBetweenSnapshotAndStore(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		victim := c.followers(leader)[0]
		c.crash(victim)
		c.put(leader, "k", "v")
		if err := leader.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := installInLog(t, victim, leader)

		if _, err := c.tryStart(victim.Name()); err == nil || !strings.Contains(err.Error(), ".snap cannot be restored") {
			t.Fatalf("Start() without the state = %v, want an error that names the file", err)
		}
		writeState(t, leader, victim.received.Path(at))
		back := c.start(victim.Name())
		if kv, _ := back.Store().Get([]byte("k")); string(kv.GetValue()) != "v" {
			t.Errorf("k = %v right after the start, want v", kv)
		}
		if value, _ := c.get(back, ReadLease, "k"); value != "v" {
			t.Errorf("k = %q, want v", value)
		}
	})
}

// installInLog makes n's log begin at leader's newest checkpoint.
func installInLog(t *testing.T, n, leader *Node) (index uint64) {
	t.Helper()
	log, err := raftwal.Open(raftwal.Config{Dir: n.cfg.dir().Log(), SegmentSize: n.cfg.SegmentSize})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	at := leader.Store().Durable()
	hard := &raftpb.HardState{Term: new(at.Term), Vote: new(uint64(0)), Commit: new(at.Index)}
	if err := log.Save(nil, hard, at.Snapshot()); err != nil {
		t.Fatal(err)
	}
	return at.Index
}

func writeState(t *testing.T, from *Node, path string) {
	t.Helper()
	state, err := from.Store().OpenSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = state.Close() }()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := state.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// A log that has vanished took votes and promises along.
func TestAMemberWithoutItsLogIsRefused(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		c.crash(n)
		if err := os.RemoveAll(n.cfg.dir().Log()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.tryStart("m1"); !errors.Is(err, ErrLost) {
			t.Errorf("Start() without the log = %v, want ErrLost", err)
		}
	})
}
