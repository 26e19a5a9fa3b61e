package kvnode

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/raftwal"
)

// lostMajority puts keys before and after a checkpoint, crashes all members at once, and
// returns the data directory of one of them with the state that it had.
func (c *cluster) lostMajority(before, after int) (survivor *Node) {
	c.t.Helper()
	survivor = c.leader()
	for i := range before {
		c.put(survivor, fmt.Sprintf("before%d", i), "v")
	}
	if before > 0 {
		if err := survivor.Checkpoint(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range after {
		c.put(survivor, fmt.Sprintf("after%d", i), "v")
	}
	c.crash(slices.Collect(maps.Values(c.nodes))...)
	return survivor
}

// absent counts the keys that were put, and are not there.
func absent(n *Node, prefix string, count int) (lost int) {
	for i := range count {
		if kv, _ := n.Store().Get(fmt.Append(nil, prefix, i)); kv == nil {
			lost++
		}
	}
	return lost
}

// sumDir returns what tells whether a file of a directory was changed.
func sumDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		sums[path] = fmt.Sprint(info.ModTime())
		if info.Mode().IsRegular() {
			sums[path] += fmt.Sprintf(" %x", sha256.Sum256(readFile(t, path)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// The majority is gone for good. The checkpoint of the member that is left lacks what was
// acknowledged since; its data directory lacks nothing.
func TestADataDirectoryIsRestoredWithItsLog(t *testing.T) {
	for _, before := range []int{0, 4} {
		t.Run(fmt.Sprintf("before=%d", before), func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				survivor := c.lostMajority(before, 6)
				dir := survivor.cfg.DataDir
				whole := sumDir(t, dir)
				want, err := survivor.Store().HashKV(0)
				if err != nil {
					t.Fatal(err)
				}
				if before > 0 {
					c.restoreAll(filepath.Join(dir, memberdir.StateFile), func(r *restore.Config) { r.SkipHashCheck = true })
					if lost := absent(c.start("m1"), "after", 6); lost != 6 {
						t.Errorf("restored from the checkpoint, %d puts are lost, want the control to lose 6", lost)
					}
				}
				restored := c.restoreAll(dir, nil)
				for _, r := range restored {
					if r.ClusterID != restored[0].ClusterID || r.Checkpoint.Revision != want.Revision || r.Replayed.Entries < 6 || r.Term <= survivor.Term() {
						t.Errorf("restored %+v with %+v, want cluster %x, revision %d, and at least 6 entries", r, r.Replayed, restored[0].ClusterID, want.Revision)
					}
				}
				if got := sumDir(t, dir); !maps.Equal(got, whole) {
					t.Errorf("the directory that was restored from has changed: %v, was %v", got, whole)
				}
				for _, name := range []string{"m1", "m2", "m3"} {
					c.start(name)
				}
				n := c.leader()
				if lost := absent(n, "before", before) + absent(n, "after", 6); lost > 0 {
					t.Errorf("%d puts are lost, want none", lost)
				}
				if got, err := n.Store().HashKV(0); err != nil || got != want {
					t.Errorf("HashKV(0) = %+v, %v, want %+v", got, err, want)
				}
				c.put(n, "k", "new")
			})
		})
	}
}

// appendPuts has a log hold puts that the member does not know to be committed.
func appendPuts(t *testing.T, dir string, keys ...string) {
	t.Helper()
	log, err := raftwal.Open(raftwal.Config{Dir: filepath.Join(dir, memberdir.LogFolder), SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	hard, _, err := log.InitialState()
	if err != nil {
		t.Fatal(err)
	}
	last, err := log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		data, err := (&store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte("v")}}}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		e := &raftpb.Entry{Term: new(hard.GetTerm()), Index: new(last + 1 + uint64(i)), Data: data}
		if err := log.Save([]*raftpb.Entry{e}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// The two that are lost had acknowledged entries, of which the third had not heard yet
// that they are committed.
func TestEntriesBeyondTheCommitIndexAreRestored(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		survivor := c.lostMajority(4, 2)
		appendPuts(t, survivor.cfg.DataDir, "x", "y", "z")
		r := c.restoreAll(survivor.cfg.DataDir, nil)[0].Replayed
		if r.Beyond < 3 || r.Last != survivor.last.Load()+3 || r.Committed+r.Beyond != r.Last || r.Term != survivor.Term() {
			t.Errorf("replayed %+v, want 3 entries at least beyond the last committed, up to index %d", r, survivor.last.Load()+3)
		}
		n := c.start("m1")
		for _, key := range []string{"x", "y", "z"} {
			if kv, _ := n.Store().Get([]byte(key)); kv == nil {
				t.Errorf("%s is lost", key)
			}
		}
	})
}

// Copies of one directory begin one cluster, and directories that differ do not.
func TestDirectoriesThatDifferBeginDifferentClusters(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		dir := c.lostMajority(4, 6).cfg.DataDir
		same, other := filepath.Join(t.TempDir(), "same"), filepath.Join(t.TempDir(), "other")
		if err := errors.Join(os.CopyFS(same, os.DirFS(dir)), os.CopyFS(other, os.DirFS(dir))); err != nil {
			t.Fatal(err)
		}
		appendPuts(t, other, "one more")
		ids := make(map[string]uint64)
		for _, from := range []string{dir, same, other} {
			got, err := restore.Snapshot(restore.Config{File: from, Name: "m1", DataDir: from + "-restored", Cluster: c.cfgs["m1"].Cluster, SegmentSize: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			ids[from] = got.ClusterID
		}
		if ids[dir] != ids[same] || ids[dir] == ids[other] {
			t.Errorf("clusters %x, want the copy's to be the same, and the longer log's not", ids)
		}
	})
}

func hashOf(t *testing.T, s *store.Store) store.Hash {
	t.Helper()
	h, err := s.HashKV(0)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A directory is described as what a restore makes of it.
func TestInspectADataDirectory(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.lostMajority(4, 6)
		got, err := restore.Inspect(n.cfg.DataDir)
		if err != nil || got.Keys != 10 || got.Hash != hashOf(t, n.Store()) || got.Size == 0 || got.Replayed.Entries < 6 {
			t.Errorf("restore.Inspect(%s) = %+v, %+v, %v, want 10 keys, and the member's hash", n.cfg.DataDir, got, got.Replayed, err)
		}
	})
}
