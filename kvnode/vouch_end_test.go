package kvnode

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// intruder is a transport at m9, which is no member, and says that member 99 is there.
func (c *cluster) intruder(n *Node) *transport.Transport {
	c.t.Helper()
	l, err := c.net.Listen("m9:2380")
	if err != nil {
		c.t.Fatal(err)
	}
	roster := func() (transport.Roster, error) {
		data, err := json.Marshal([]store.Member{{ID: 99, PeerURLs: peerURLs("m9")}})
		return transport.Roster{ClusterID: n.ClusterID(), Members: data, Applied: 1 << 40}, err
	}
	links, err := transport.Start(transport.Config{
		Hello: transport.Hello{ClusterID: n.ClusterID(), From: 99, Instance: "ghost", Format: store.FormatNewest}, Listener: l,
		Handler: hospitable{}, Roster: roster, Dial: c.net.Dialer("m9"),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = links.Close() })
	links.SetPeer(n.ID(), []string{n.Name() + ":2380"})
	return links
}

// hospitable lets everybody in.
type hospitable struct{}

func (hospitable) Admit(transport.Hello) error                             { return nil }
func (hospitable) Refused(uint64, error)                                   {}
func (hospitable) Connected(uint64, transport.Hello)                       {}
func (hospitable) Receive(*raftpb.Message, transport.ProcessID)            {}
func (hospitable) Died(uint64, transport.ProcessID)                        {}
func (hospitable) ReceiveSnapshot(*raftpb.Message, int64, io.Reader) error { return nil }
func (hospitable) Unreachable(uint64)                                      {}
func (hospitable) Gone(uint64)                                             {}
func (hospitable) SnapshotSent(uint64, error)                              {}

// naming restarts a follower with m9 in its Config.Cluster.
func (c *cluster) naming(name string) *Node {
	c.t.Helper()
	n := c.followers(c.leader())[0]
	c.stop(n.Name())
	cfg := c.cfgs[n.Name()]
	cfg.Cluster = append(slices.Clone(cfg.Cluster), Member{Name: name, PeerURLs: peerURLs(name)})
	c.cfgs[n.Name()] = cfg
	return c.start(n.Name())
}

func isPeer(t *transport.Transport, id uint64) (linked, connected bool) {
	i := slices.IndexFunc(t.Peers(), func(p transport.PeerStatus) bool { return p.ID == id })
	return i >= 0, i >= 0 && t.Peers()[i].Connected
}

// Whoever keeps the others from answering, while there is a leader, brings nobody in.
func TestFlagsDoNotVouchWhileThereIsALeader(t *testing.T) {
	var deaf atomic.Bool
	amend := func(cfg *Config) {
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if deaf.Load() && addr != "m9:2380" {
				return nil, errors.New("nobody answers")
			}
			return dial(ctx, addr)
		}
	}
	inCluster(t, 3, amend, func(t *testing.T, c *cluster) {
		n := c.naming("m9")
		leader := c.leader()
		time.Sleep(20 * time.Second)
		deaf.Store(true) // connections that exist go on
		ghost := c.intruder(n)
		for range 3 * minLonely {
			time.Sleep(2 * vouchPause)
			if _, connected := isPeer(ghost, n.ID()); connected {
				t.Fatal("a stranger is let in while there is a leader")
			}
		}
		if n.Leader() != leader.ID() {
			t.Errorf("%x leads, want the same as before, or this shows nothing", n.Leader())
		}
	})
}

// For want of a majority, a moment is not enough. Who came in leaves once there is a
// majority, and what it says meanwhile ends nobody.
func TestWhoFlagsLetInLeavesWithThem(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.naming("m9")
		c.leader()
		time.Sleep(20 * time.Second)
		c.isolate(n)
		for n.Leader() != 0 {
			time.Sleep(10 * time.Millisecond)
		}
		ghost := c.intruder(n)
		time.Sleep((minLonely - 1) * vouchPause)
		if _, connected := isPeer(ghost, n.ID()); connected {
			t.Errorf("a stranger is let in before the others were asked %d times", minLonely)
		}
		time.Sleep(10 * time.Second)
		linked, _ := isPeer(n.links, 99)
		if _, connected := isPeer(ghost, n.ID()); !connected || !linked {
			t.Fatalf("without a majority: connected %v, linked %v, want whom flags name let in", connected, linked)
		}
		for _, reason := range []string{transport.ReasonWiped, transport.ReasonRemoved} {
			peers{n}.Refused(99, &transport.RefusedError{Peer: 99, Reason: reason})
		}
		if err := n.Err(); err != nil || n.farewells.mu.from[99] {
			t.Errorf("refused by whom flags alone name: %v, dismissed %v, want neither", err, n.farewells.mu.from[99])
		}
		c.net.HealAll()
		c.leader()
		time.Sleep(2 * vouchRenewal)
		linked, _ = isPeer(n.links, 99)
		if _, connected := isPeer(ghost, n.ID()); connected || linked {
			t.Errorf("with a majority again: connected %v, linked %v, want neither", connected, linked)
		}
	})
}

// A registered member has no say either where flags alone have led to.
func TestWhoHasASay(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		id := c.followers(n)[0].ID()
		m := n.store.Members().ByID[id]
		for _, test := range []struct {
			name string
			said roster
			want bool
		}{
			{"a member says that it has moved", roster{members: []store.Member{{ID: id, PeerURLs: peerURLs("m9")}}, applied: 1 << 40}, true},
			{"flags say that it is where it is", roster{members: []store.Member{m}, applied: 1 << 40, flags: true}, true},
			{"flags say that it has moved", roster{members: []store.Member{{ID: id, PeerURLs: peerURLs("m9")}}, applied: 1 << 40, flags: true}, false},
		} {
			n.book.note("m9:2380", test.said)
			if got := n.book.hasSay(id); got != test.want {
				t.Errorf("%s: hasSay() = %v, want %v", test.name, got, test.want)
			}
		}
		n.book.note("m9:2380", roster{members: []store.Member{{ID: 99, PeerURLs: peerURLs("m9")}}, applied: 1 << 40})
		if n.book.hasSay(99) {
			t.Error("hasSay() of a member that is not registered = true, want false")
		}
	})
}

// Where a member is counts from registries that are newer than this member's alone.
func TestOldRostersDoNotMoveMembers(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		id, applied := c.followers(n)[0].ID(), n.Store().Applied()
		for _, test := range []struct {
			name    string
			id      uint64
			applied uint64
			want    int // of its URLs
		}{
			{"a newer one", id, applied + 1, 2},
			{"one as new", id, applied, 1},
			{"an older one", id, 1, 1},
			{"a former version's", id, 0, 1},
			{"a newer one, of a member that is not registered", 99, applied + 1, 1},
			{"one as new, of a member that is not registered", 99, applied, 0},
			{"a former version's, of a member that is not registered", 99, 0, 1},
		} {
			n.book.note("m9:2380", roster{members: []store.Member{{ID: test.id, PeerURLs: peerURLs("m9")}}, applied: test.applied})
			if m, _ := n.book.believed(test.id); len(m.PeerURLs) != test.want {
				t.Errorf("%s: it is believed at %v, want %d URLs", test.name, m.PeerURLs, test.want)
			}
		}
	})
}

// A member that is vouched for, and removed while it is let in, leaves no link.
func TestARemovedMemberLeavesNoLink(t *testing.T) {
	held := &holding{Handler: slog.DiscardHandler}
	inCluster(t, 3, func(c *Config) { c.LaxReconfig = true; c.Logger = slog.New(held) }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(20 * time.Second)
		held.met, held.release = make(chan struct{}), make(chan struct{})
		at, goes := c.followers(leader)[0], c.followers(leader)[1]
		hello := transport.Hello{From: goes.ID(), Instance: goes.id.Instance, Format: goes.cfg.newestFormat, Log: goes.atStart, PeerURLs: "http://elsewhere:1"}
		done := make(chan error, 1)
		go func() { done <- peers{at}.Admit(hello) }()
		<-held.met
		if err := leader.RemoveMember(t.Context(), goes.ID()); err != nil {
			t.Fatal(err)
		}
		for !at.Store().Members().Removed[goes.ID()] {
			time.Sleep(10 * time.Millisecond)
		}
		close(held.release)
		if err := <-done; reasonOf(err) != transport.ReasonRemoved {
			t.Errorf("Admit() of a member that was removed meanwhile = %v, want it refused as removed", err)
		}
		if linked, _ := isPeer(at.links, goes.ID()); linked {
			t.Error("there is a link to a member that was removed")
		}
	})
}

// holding is a log that says, once, when a member is said to have moved, and waits.
type holding struct {
	slog.Handler
	met, release chan struct{}
}

func (h *holding) Enabled(context.Context, slog.Level) bool { return true }
func (h *holding) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *holding) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "advertises other peer URLs") {
		select {
		case <-h.release:
		case h.met <- struct{}{}:
			<-h.release
		}
	}
	return nil
}

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
