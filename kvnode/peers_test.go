package kvnode

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// certified gives each member a certificate for its host, and for more hosts that are of it. The authority is made
// in the bubble, whose time it keeps.
func certified(t *testing.T, more ...func(host string) string) func(*Config) {
	t.Helper()
	dir := t.TempDir()
	var ca *tlstest.Authority
	return func(c *Config) {
		if ca == nil {
			ca = tlstest.New(t, "ca")
		}
		side := tlsconf.Config{Peers: true, TrustedCAFile: tlstest.Write(t, dir, "ca", ca.PEM)}
		hosts := []string{c.Name}
		for _, f := range more {
			hosts = append(hosts, f(c.Name))
		}
		side.CertFile, side.KeyFile = ca.Issue(hosts).Write(dir, c.Name)
		var err error
		if c.PeerTLS, err = tlsconf.New(side); err != nil {
			t.Fatal(err)
		}
	}
}

// reasonOf returns why err refuses a member, "" if it does not.
func reasonOf(err error) string {
	if refusal, ok := errors.AsType[*transport.Refusal](err); ok {
		return refusal.Reason
	}
	return ""
}

// isPeer reports whether t has a link to a member, and whether it is connected.
func isPeer(t *transport.Transport, id uint64) (linked, connected bool) {
	i := slices.IndexFunc(t.Peers(), func(p transport.PeerStatus) bool { return p.ID == id })
	return i >= 0, i >= 0 && t.Peers()[i].Connected
}

// An ID that is not registered is refused, and leaves nothing behind, unless it names a registered host.
func TestStrangersLeaveNothingBehind(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		time.Sleep(time.Second)
		links := len(n.links.Peers())
		for i := range uint64(2000) {
			hello := transport.Hello{From: 1 + i, Instance: "x", PeerURLs: "http://elsewhere:2380"}
			if reason := reasonOf(peers{n}.Admit(hello)); reason != transport.ReasonUnknown {
				t.Fatalf("Admit(%+v) is refused for %q, want %q", hello, reason, transport.ReasonUnknown)
			}
		}
		if now := len(n.links.Peers()); now != links {
			t.Errorf("there are links to %d peers, want %d as before", now, links)
		}
		for i := range uint64(10 * maxCallers) {
			hello := transport.Hello{From: 1 + i, Instance: "x", PeerURLs: "http://m2:1", Format: store.FormatNewest, Log: transport.LogEnd{Process: "p"}}
			if err := (peers{n}).Admit(hello); err != nil {
				t.Fatalf("Admit() of an ID at a registered host = %v", err)
			}
		}
		if now := len(n.links.Peers()); now != links+maxCallers {
			t.Errorf("there are links to %d peers, want the oldest of %d callers forgotten but for %d", now, 10*maxCallers, maxCallers)
		}
		if now := len(n.loop.witness.mu.of); now > links+1+maxCallers {
			t.Errorf("%d members are remembered, want %d at most", now, links+1+maxCallers)
		}
		for i := range uint64(10 * maxCallers) {
			peers{n}.Gone(1 + i)
		}
		if now := len(n.links.Peers()); now != links {
			t.Errorf("there are links to %d peers after all callers have gone, want %d as before", now, links)
		}
	})
}

// An ID that is not registered and names no valid peer URL is accepted for its registered host, but leaves nothing
// behind: its connection may end in a way that Gone does not tell of.
func TestCallersWithoutAValidURLLeaveNothingBehind(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		time.Sleep(time.Second)
		remembered := len(n.loop.witness.mu.of)
		for i := range uint64(100) {
			hello := transport.Hello{From: 1 + i, Instance: "x", PeerURLs: "http://m2:1,ftp://m2:1", Format: store.FormatNewest, Log: transport.LogEnd{Process: "p"}}
			if err := (peers{n}).Admit(hello); err != nil {
				t.Fatalf("Admit() of an ID at a registered host = %v", err)
			}
		}
		if now := len(n.loop.witness.mu.of); now != remembered {
			t.Errorf("%d members are remembered, want %d as before", now, remembered)
		}
	})
}

// A registered member that has moved stays reachable, however many unregistered IDs call: its connection to this member
// stays, so that it does not say again where it is.
func TestCallersDoNotReplaceARegisteredMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		other := c.followers(n)[0]
		time.Sleep(time.Second)
		moved := transport.Hello{From: other.ID(), Instance: other.id.Instance, PeerURLs: "http://elsewhere:1", Format: store.FormatNewest, Log: other.atStart}
		if err := (peers{n}).Admit(moved); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(2 * maxCallers) {
			hello := transport.Hello{From: 1 + i, Instance: "x", PeerURLs: "http://m2:1", Format: store.FormatNewest}
			if err := (peers{n}).Admit(hello); err != nil {
				t.Fatalf("Admit() of an ID at a registered host = %v", err)
			}
		}
		if !n.routes.isCaller(other.ID()) {
			t.Error("the URLs of a registered member that has moved are forgotten")
		}
		if now, want := len(n.links.Peers()), 2+maxCallers; now != want {
			t.Errorf("there are links to %d peers, want %d", now, want)
		}
	})
}

// In plain text a member ends because of what a peer says only if that peer is registered, and is where the registry,
// or the configuration, has it.
func TestOnlyRegisteredMembersEndAMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		other := c.followers(n)[0]
		time.Sleep(time.Second)
		hello := transport.Hello{From: 99, Instance: "x", PeerURLs: "http://m2:1", Format: store.FormatNewest}
		moved := transport.Hello{From: other.ID(), Instance: other.id.Instance, PeerURLs: "http://elsewhere:1", Format: store.FormatNewest, Log: other.atStart}
		if err := errors.Join(peers{n}.Admit(hello), peers{n}.Admit(moved)); err != nil {
			t.Fatal(err)
		}
		for _, id := range []uint64{98, 99, other.ID()} {
			for _, reason := range []string{transport.ReasonWiped, transport.ReasonRemoved} {
				peers{n}.Refused(id, &transport.RefusedError{Peer: id, Reason: reason})
			}
			if err := n.Err(); err != nil || n.farewells.mu.from[id] {
				t.Fatalf("refused by %x: Err() = %v, dismissed: %v, want neither", id, err, n.farewells.mu.from[id])
			}
		}
		third := c.followers(n)[1]
		peers{n}.Refused(third.ID(), &transport.RefusedError{Peer: third.ID(), Reason: transport.ReasonWiped})
		if err := n.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("refused by a registered member: Err() = %v, want ErrLost", err)
		}
		wantEnd(t, n)
		delete(c.nodes, n.Name())
	})
}

// With certificates a registered member that has moved counts as well: its certificate says which one it is. An old
// image of a disk, which has the others where they were, must not go on because those that know of it have moved
// since.
func TestARegisteredMemberThatHasMovedEndsAMember(t *testing.T) {
	inCluster(t, 3, certified(t), func(t *testing.T, c *cluster) {
		n := c.leader()
		other := c.followers(n)[0]
		time.Sleep(time.Second)
		moved := transport.Hello{From: other.ID(), Instance: other.id.Instance, PeerURLs: "http://elsewhere:1", Format: store.FormatNewest, Log: other.atStart}
		if err := (peers{n}).Admit(moved); err != nil {
			t.Fatal(err)
		}
		peers{n}.Refused(other.ID(), &transport.RefusedError{Peer: other.ID(), Reason: transport.ReasonWiped})
		if err := n.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("Err() = %v, want ErrLost", err)
		}
		wantEnd(t, n)
		delete(c.nodes, n.Name())
	})
}

// A member that is removed while it is accepted leaves no link.
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
		if err := <-done; err != nil { // the transport asks again, as the removal has come in between (Transport.enter)
			t.Errorf("Admit() of a member that was registered when it came = %v", err)
		}
		if reason := reasonOf(peers{at}.Admit(hello)); reason != transport.ReasonRemoved {
			t.Errorf("Admit() of a removed member is refused for %q, want %q", reason, transport.ReasonRemoved)
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
