package kvnode

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/leaderlease/fence"
	"github.com/leaderlease/go/raftwal"
)

// token takes a fencing token of the leader lease.
func (c *cluster) token(n *Node) fence.Token {
	c.t.Helper()
	token, err := n.Lease().Token()
	if err != nil {
		c.t.Fatalf("Token() on %s: %v", n.Name(), err)
	}
	return token
}

// transfers has each of the members lead in turn, and returns the newest token.
func (c *cluster) transfers(times int) fence.Token {
	c.t.Helper()
	for range times {
		n := c.leader()
		if err := n.MoveLeader(c.t.Context(), c.followers(n)[0].ID()); err != nil {
			c.t.Fatal(err)
		}
		c.put(c.leader(), "k", "after a hand-over")
	}
	return c.token(c.leader())
}

// termOnDisk returns the term in which the log of a data directory begins.
func termOnDisk(t *testing.T, dataDir string) uint64 {
	t.Helper()
	log, err := raftwal.OpenReadOnly(raftwal.Config{Dir: filepath.Join(dataDir, memberdir.LogFolder)})
	if err != nil {
		t.Fatal(err)
	}
	hard, _, err := log.InitialState()
	if err := errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
	return hard.GetTerm()
}

// A resource that has seen tokens of the saved cluster, those that were given after
// the snapshot included, takes those of the restored one for newer: the first one,
// and all that follow.
func TestTokensOfARestoredClusterAreNew(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.put(c.leader(), "k", "v")
		file := saveSnapshot(t, c.leader())
		last := c.transfers(3)

		restored := c.restoreAll(file, nil)
		for _, r := range restored {
			if r.Term != restored[0].Term || r.Checkpoint.Term >= last.Term {
				t.Errorf("restored %+v, want all in term %d, from a snapshot older than term %d", r, restored[0].Term, last.Term)
			}
		}
		for name, cfg := range c.cfgs {
			if got := termOnDisk(t, cfg.DataDir); got != restored[0].Term {
				t.Errorf("the log of %s begins in term %d, want %d", name, got, restored[0].Term)
			}
			c.start(name)
		}
		token := c.token(c.leader())
		for range 3 {
			if !last.Less(token) {
				t.Fatalf("token %v after %v, want a newer one", token, last)
			}
			last, token = token, c.transfers(1)
		}
	})
}

// A snapshot that was restored before is restored in a later term if one asks for
// that: the first restored cluster's tokens do not come again either, and its
// members do not know it.
func TestASecondRestoreMayBeginLater(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		file := saveSnapshot(t, c.leader())
		first := c.restoreAll(file, nil)
		for name := range c.cfgs {
			c.start(name)
		}
		last := c.transfers(3)

		second := c.restoreAll(file, func(r *restore.Config) { r.BumpTerm = 2 * restore.DefaultBumpTerm })
		if second[0].ClusterID == first[0].ClusterID || second[0].Term != first[0].Term+restore.DefaultBumpTerm {
			t.Errorf("restored %+v after %+v, want another cluster, %d terms later", second[0], first[0], restore.DefaultBumpTerm)
		}
		for name := range c.cfgs {
			c.start(name)
		}
		if token := c.token(c.leader()); !last.Less(token) {
			t.Errorf("token %v after %v, want a newer one", token, last)
		}
	})
}
