package kvnode

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// Of a member's peer URLs one may hang.
func TestAllPeerURLsAreAskedAtOnce(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		cfg := n.cfg
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "hangs:2380" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return n.cfg.Dial(ctx, addr)
		}
		both := []string{"http://hangs:2380", "http://m1:2380"}
		began := time.Now()
		if id := cfg.clusterOf(t.Context(), &Member{PeerURLs: both}); id != n.ClusterID() || time.Since(began) > time.Second {
			t.Errorf("clusterOf() = %x after %v, want %x at once", id, time.Since(began), n.ClusterID())
		}
		wrong := errors.New("wrong")
		cfg.Cluster = append(slices.Clone(cfg.Cluster), Member{Name: "other", PeerURLs: both})
		cfg.Name = "other than m1"
		calls := 0
		if err := cfg.askOthers(func(transport.Roster) error {
			if calls++; calls < 2 {
				return wrong
			}
			return nil
		}); err != nil || calls != 2 {
			t.Errorf("askOthers() = %v after %d answers, want 2: the first is of no use", err, calls)
		}
	})
}

// The roster has the instance of each member that has started, and no other.
func TestARosterHasInstances(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		<-n.Published()
		if _, err := n.AddMember(t.Context(), peerURLs("m2"), true); err != nil {
			t.Fatal(err)
		}
		r, err := transport.Ask(t.Context(), c.net.Dialer("anybody"), "m1:2380")
		if err != nil {
			t.Fatal(err)
		}
		var members []store.Member
		if err := json.Unmarshal(r.Members, &members); err != nil || len(members) != 2 {
			t.Fatalf("the roster is %s, %v, want two members", r.Members, err)
		}
		for _, m := range members {
			want := ""
			if m.ID == n.ID() {
				want = n.id.Instance
			}
			if len(m.ClientURLs) > 0 {
				t.Errorf("of member %x the roster says client URLs %q, want none", m.ID, m.ClientURLs)
			}
			if m.Instance != want {
				t.Errorf("of member %x the roster says instance %q, want %q", m.ID, m.Instance, want)
			}
		}
		// A member that was there before, with another directory, is found out.
		cfg := c.cfgs["m1"]
		cfg.DataDir = filepath.Join(t.TempDir(), "lost")
		cfg = cfg.WithDefaults()
		if _, err := cfg.joinAs(r); !errors.Is(err, ErrLost) {
			t.Errorf("joinAs() of a member that has started = %v, want ErrLost", err)
		}
	})
}
