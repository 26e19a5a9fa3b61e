package kvnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/raftwal"
)

// A restore starts with a snapshot that another member sent and that store.db lacks because of a crash.
func TestARestoreBeginsWithTheSnapshotThatWasReceived(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		victim := c.followers(leader)[0]
		c.crash(victim)
		c.put(leader, "k", "v")
		if err := leader.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := installInLog(t, victim, leader)
		cfg := restore.Config{File: victim.cfg.DataDir, Name: "m1", DataDir: filepath.Join(t.TempDir(), "new"), Cluster: victim.cfg.Cluster, SegmentSize: 1 << 20}
		if _, err := restore.Snapshot(cfg); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the log begins at %d", at+1)) {
			t.Errorf("restore.Snapshot() without the state = %v, want where the log begins", err)
		}
		writeState(t, leader, victim.received.Path(at))
		got, err := restore.Snapshot(cfg)
		if err != nil || got.Checkpoint.Index != at || got.Checkpoint.Revision != leader.Store().Durable().Revision {
			t.Errorf("restore.Snapshot() = %+v, %v, want index %d", got, err, at)
		}
	})
}

// A received snapshot holds acknowledged entries, and may be the only copy. After a crash, the log may lack
// it, and have entries in its place that were never committed.
func TestASnapshotNewerThanTheLogIsRestored(t *testing.T) {
	for _, test := range []struct {
		name string
		tail int // how many entries that were never committed the log has
	}{
		{"the log ends before it", 0},
		{"the log has another entry at its index", 40},
	} {
		t.Run(test.name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				first := c.leader()
				victim, next := c.followers(first)[0], c.followers(first)[1]
				time.Sleep(time.Second)
				c.crash(victim)
				if err := first.MoveLeader(t.Context(), next.ID()); err != nil {
					t.Fatal(err)
				}
				c.put(next, "k", "v")
				if err := next.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				at := receive(t, victim, next)
				var tail []string
				for i := range test.tail {
					tail = append(tail, fmt.Sprint("tail", i))
				}
				appendPuts(t, victim.cfg.DataDir, tail...)
				r := c.restoreAll(victim.cfg.DataDir, nil)[0]
				if got := r.Replayed; r.Checkpoint.Index != at.Index || got.Received != at.Index || got.Last != at.Index || got.Term != at.Term || got.Beyond != 0 || got.Entries != 0 {
					t.Errorf("restored index %d by %+v, want the snapshot of index %d in term %d alone", r.Checkpoint.Index, got, at.Index, at.Term)
				}
				n := c.start("m1")
				if kv, _ := n.Store().Get([]byte("k")); string(kv.GetValue()) != "v" {
					t.Errorf("k = %q, want v, which was acknowledged", kv.GetValue())
				}
				if lost := absent(n, "tail", test.tail); lost != test.tail {
					t.Errorf("%d of %d entries that were not committed are restored", test.tail-lost, test.tail)
				}
			})
		})
	}
}

// receive stores the newest checkpoint of another member in the directory of a member that does not run, as that has
// it before its log hears of the snapshot.
func receive(t *testing.T, n, from *Node) store.Checkpoint {
	t.Helper()
	at := from.Store().Durable()
	writeState(t, from, n.received.Path(at.Index))
	return at
}

// A restore refuses a snapshot that it cannot read, and one of another log, which has another committed
// entry at that index.
func TestRestoreRefusesAReceivedSnapshot(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.lostMajority(4, 6)
		checkpoint, next := filepath.Join(n.cfg.DataDir, memberdir.StateFile), n.Store().Durable().Index+1
		for _, test := range []struct {
			name  string
			index uint64
			write func(path string) error
			want  string
		}{
			{"damaged", next, func(path string) error { return os.WriteFile(path, make([]byte, 1<<16), 0o600) }, "move it away to restore without it"},
			{"named wrongly", next, func(path string) error { return os.WriteFile(path, readFile(t, checkpoint), 0o600) }, "move it away to restore without it"},
			{"of another log", next, func(path string) error {
				return errors.Join(os.WriteFile(path, readFile(t, checkpoint), 0o600), applyTo(path, next, n.Term()+1))
			}, "one of the two is of another directory"},
		} {
			dir := filepath.Join(t.TempDir(), "dir")
			path := filepath.Join(dir, memberdir.SnapFolder, memberdir.SnapName(test.index))
			if err := errors.Join(os.CopyFS(dir, os.DirFS(n.cfg.DataDir)), test.write(path)); err != nil {
				t.Fatal(err)
			}
			if _, err := restore.Inspect(dir); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: restore.Inspect() = %v, want %q of %s", test.name, err, test.want, path)
			}
		}
	})
}

// applyTo applies an empty entry to the state in a file.
func applyTo(path string, index, term uint64) error {
	backend, err := boltdb.Open(path)
	if err != nil {
		return err
	}
	s, err := store.Open(store.Config{Backend: backend})
	if err != nil {
		return errors.Join(err, backend.Close())
	}
	s.Apply(index, term, nil)
	_, err = s.SaveCheckpoint(nil)
	return errors.Join(err, s.Close())
}

// A member that has joined has the state of its snapshot, even if it ended before its log had an entry.
func TestASnapshotIsRestoredWithoutAnEntry(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		if err := leader.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		victim := c.followers(leader)[0]
		c.crash(victim)
		at := receive(t, victim, leader)
		dir := victim.cfg.DataDir
		if err := errors.Join(os.RemoveAll(victim.cfg.dir().Log()), beginEmpty(dir)); err != nil {
			t.Fatal(err)
		}
		if _, err := restore.Inspect(dir); err == nil || !strings.Contains(err.Error(), "its log is empty") {
			t.Errorf("restore.Inspect() = %v, want it refused: the log is lost, and what was behind the snapshot with it", err)
		}
		begin(t, victim, at.Term)
		if s, err := restore.Inspect(dir); err != nil || s.Replayed.Received != at.Index {
			t.Errorf("restore.Inspect() = %+v, %v, want the snapshot of index %d", s.Replayed, err, at.Index)
		}
		if r := c.restoreAll(dir, nil)[0]; r.Checkpoint.Index != at.Index || r.Term < at.Term {
			t.Errorf("restored index %d in term %d, want %d in %d", r.Checkpoint.Index, r.Term, at.Index, at.Term)
		}
	})
}

// begin saves a term in the log of a member that does not run.
func begin(t *testing.T, n *Node, term uint64) {
	t.Helper()
	log, err := raftwal.Open(raftwal.Config{Dir: n.cfg.dir().Log(), SegmentSize: n.cfg.SegmentSize})
	if err != nil {
		t.Fatal(err)
	}
	err = log.Save(nil, &raftpb.HardState{Term: new(term), Vote: new(uint64(0)), Commit: new(uint64(0))}, nil)
	if err := errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
}

// A log that ends before the last checkpoint may also have lost the entries after a received snapshot.
func TestAReceivedSnapshotDoesNotHideThatTheLogIsCutOff(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		early := filepath.Join(t.TempDir(), "early")
		if err := os.CopyFS(early, os.DirFS(c.leader().cfg.DataDir)); err != nil {
			t.Fatal(err)
		}
		n := c.lostMajority(4, 0)
		dir, at := n.cfg.DataDir, n.Store().Durable()
		path := n.received.Path(at.Index + 1)
		if err := errors.Join(os.WriteFile(path, readFile(t, n.cfg.dir().Path(memberdir.StateFile)), 0o600), applyTo(path, at.Index+1, at.Term)); err != nil {
			t.Fatal(err)
		}
		if s, err := restore.Inspect(dir); err != nil || s.Replayed.Last != at.Index+1 {
			t.Fatalf("restore.Inspect() = %+v, %v, want index %d", s.Replayed, err, at.Index+1)
		}
		if err := swap(n.cfg.dir().Log(), filepath.Join(early, memberdir.LogFolder)); err != nil {
			t.Fatal(err)
		}
		if s, err := restore.Inspect(dir); err == nil || !strings.Contains(err.Error(), "the log ends at") {
			t.Errorf("restore.Inspect() = %+v, %v, want it refused: the log ends before the checkpoint", s.Replayed, err)
		}
	})
}

func swap(dir, from string) error {
	return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(from)))
}

func beginEmpty(dir string) error {
	log, err := raftwal.Open(raftwal.Config{Dir: filepath.Join(dir, memberdir.LogFolder), SegmentSize: 1 << 20})
	if err != nil {
		return err
	}
	return log.Close()
}
