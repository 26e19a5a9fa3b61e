package kvnode

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/restore"
)

// saveSnapshot writes what a client's snapshot save does.
func saveSnapshot(t *testing.T, n *Node) string {
	t.Helper()
	if err := n.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := n.Store().OpenSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = state.Close() }()
	var b bytes.Buffer
	if _, err := state.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	db := append(b.Bytes(), make([]byte, -b.Len()&511)...) // padded, with its checksum at the end
	sum := sha256.Sum256(db)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, append(db, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// restoreAll stops all members and gives each a new directory that is restored
// from file.
func (c *cluster) restoreAll(file string, amend func(*restore.Config)) []restore.Result {
	c.t.Helper()
	c.stopAll()
	clear(c.nodes)
	var all []restore.Result
	for _, name := range []string{"m1", "m2", "m3"} {
		cfg, ok := c.cfgs[name]
		if !ok {
			continue
		}
		cfg.DataDir += "-restored"
		c.cfgs[name] = cfg
		r := restore.Config{File: file, Name: name, DataDir: cfg.DataDir, Cluster: cfg.Cluster, Token: cfg.Token, SegmentSize: 1 << 20}
		if amend != nil {
			amend(&r)
		}
		got, err := restore.Snapshot(r)
		if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, got)
	}
	return all
}

// Three members that are restored from one snapshot are a new cluster with the
// old keys, at the old revisions, which goes on from there.
func TestRestoreBeginsANewCluster(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		for i := range 30 {
			c.put(old, fmt.Sprintf("k%d", i%10), fmt.Sprint(i))
		}
		if _, err := old.Propose(t.Context(), &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: old.ID(), Alarm: pb.AlarmType_NOSPACE,
		}}); err != nil {
			t.Fatal(err)
		}
		file := saveSnapshot(t, old)
		want, err := old.Store().HashKV(0)
		if err != nil {
			t.Fatal(err)
		}
		oldCluster, oldTerm := old.ClusterID(), old.Term()

		restored := c.restoreAll(file, nil)
		for _, name := range []string{"m1", "m2", "m3"} {
			c.start(name)
		}
		n := c.leader()
		for _, r := range restored {
			if r.ClusterID != n.ClusterID() || r.ClusterID == oldCluster || r.Checkpoint.Revision != want.Revision {
				t.Errorf("restored %+v, want cluster %x, which is not %x, at revision %d", r, n.ClusterID(), oldCluster, want.Revision)
			}
		}
		if got, err := n.Store().HashKV(0); err != nil || got != want {
			t.Errorf("HashKV(0) = %+v, %v, want %+v", got, err, want)
		}
		if n.Term() <= oldTerm {
			t.Errorf("term = %d, want it above the old cluster's %d", n.Term(), oldTerm)
		}
		if got := n.Store().Alarms(); len(got) != 0 {
			t.Errorf("alarms = %v, want none", got)
		}
		c.goesOn(n, want.Revision)
	})
}

// goesOn has a restored cluster, which n leads, written to from a revision on, and one
// of its members restarted.
func (c *cluster) goesOn(n *Node, revision int64) {
	t := c.t
	t.Helper()
	c.put(n, "k0", "new")
	for _, f := range c.followers(n) {
		if value, _ := c.get(f, ReadIndex, "k0"); value != "new" {
			t.Errorf("k0 on %s = %q, want new", f.Name(), value)
		}
	}
	if got := n.Store().Revision(); got != revision+1 {
		t.Errorf("revision after a put = %d, want %d", got, revision+1)
	}
	<-n.Published()
	members := n.Store().Members()
	if len(members.ByID) != 3 || members.ByID[n.ID()].Name != n.Name() {
		t.Errorf("Members() = %+v, want the three that were restored", members)
	}
	// A restart of one finds what the restore has made, and what came after.
	victim := c.followers(n)[0].Name()
	c.stop(victim)
	back := c.start(victim)
	if value, _ := c.get(back, ReadIndex, "k0"); value != "new" {
		t.Errorf("k0 after a restart = %q, want new", value)
	}
}

// A member of the old cluster has the same name, URLs and token, and yet is not
// let in; nor is one that was restored from another snapshot.
func TestOthersAreNotLetIntoARestoredCluster(t *testing.T) {
	for name, change := range map[string]func(c *cluster, cfg *Config, older string){
		"of the old cluster": func(_ *cluster, cfg *Config, _ string) {
			cfg.DataDir = strings.TrimSuffix(cfg.DataDir, "-restored")
		},
		"from another snapshot": func(c *cluster, cfg *Config, older string) {
			cfg.DataDir += "-again"
			if _, err := restore.Snapshot(restore.Config{File: older, Name: cfg.Name, DataDir: cfg.DataDir, Cluster: cfg.Cluster, SegmentSize: 1 << 20}); err != nil {
				c.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				old := c.leader()
				older := saveSnapshot(t, old)
				c.put(old, "k", "v")
				c.restoreAll(saveSnapshot(t, old), nil)
				cfg := c.cfgs["m3"]
				change(c, &cfg, older)
				c.cfgs["m3"] = cfg
				c.start("m1")
				c.start("m2")
				stranger := c.start("m3")
				n := c.leader(stranger)
				c.put(n, "k", "new")
				if stranger.Leader() != 0 {
					t.Errorf("the stranger follows %x, want no leader", stranger.Leader())
				}
				for _, p := range stranger.Status().Peers {
					if p.Connected {
						t.Errorf("the stranger is connected to %x, want it refused", p.ID)
					}
				}
				if kv, _ := stranger.Store().Get([]byte("k")); string(kv.GetValue()) == "new" {
					t.Error("the stranger has heard of a write")
				}
			})
		})
	}
}

// A directory that is restored once more has lost the promises of the first time.
func TestARestoredMemberThatIsRestoredAgainIsRefused(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		file := saveSnapshot(t, c.leader())
		c.restoreAll(file, nil)
		for _, name := range []string{"m1", "m2", "m3"} {
			c.start(name)
		}
		n := c.leader()
		c.put(n, "k", "v")
		victim := c.followers(n)[0]
		c.stop(victim.Name())
		cfg := c.cfgs[victim.Name()]
		cfg.DataDir += "-again"
		c.cfgs[victim.Name()] = cfg
		if _, err := restore.Snapshot(restore.Config{File: file, Name: cfg.Name, DataDir: cfg.DataDir, Cluster: cfg.Cluster, SegmentSize: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		back := c.start(victim.Name())
		wantEnd(t, back)
		if !errors.Is(back.Err(), ErrLost) {
			t.Errorf("Err() = %v, want ErrLost", back.Err())
		}
		delete(c.nodes, victim.Name())
	})
}

func TestRestoreMayRaiseTheRevision(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		before := n.Store().Revision()
		c.restoreAll(saveSnapshot(t, n), func(r *restore.Config) { r.BumpRevision, r.MarkCompacted = 1_000_000, true })
		c.start("m1")
		n = c.leader()
		c.put(n, "k", "w")
		if got := n.Store().Revision(); got != before+1_000_001 || n.Store().CompactRevision() != got-1 {
			t.Errorf("revision %d, compacted %d, want %d and one less", got, n.Store().CompactRevision(), before+1_000_001)
		}
	})
}
