package membership

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// testGate is the gate of the member 1 with what it uses.
type testGate struct {
	*Gate
	store    *fakeStore
	links    *fakeLinks
	routes   *Routes
	rollback *RollbackDetector
	log      bytes.Buffer
	changes  int
	current  bool
}

func newGate(certificates bool, configured ...memberdir.Member) *testGate {
	g := &testGate{store: three(), links: newLinks(), rollback: NewRollbackDetector(), current: true}
	list, log := NewList(1, nil, configured, g.store), slog.New(slog.NewTextHandler(&g.log, nil))
	g.routes = NewRoutes(RoutesConfig{List: list, Links: g.links, Certificates: certificates, Changed: func() { g.changes++ }, FoundsAlone: true, Log: log})
	g.Gate = NewGate(GateConfig{
		List: list, Instances: NewInstances(InstancesConfig{Store: g.store, Log: &fakeLog{first: 1}, Links: g.links}),
		Rollback: g.rollback, Routes: g.routes, Certificates: certificates,
		ClusterVersion: func() int64 { return store.ClusterVersionNewest }, IsCurrent: func() bool { return g.current }, Log: log,
	})
	g.routes.RegistryChanged()
	return g
}

// hello is of a process that lacks nothing.
func hello(id uint64, urls string) *transport.Hello {
	return &transport.Hello{From: id, Instance: "i" + transport.ID(id), PeerURLs: urls, ClusterVersion: store.ClusterVersionNewest, Log: transport.DiskState{Boot: "p"}}
}

func (g *testGate) mustAdmit(t *testing.T, h *transport.Hello) {
	t.Helper()
	if err := g.Admit(h); err != nil {
		t.Fatalf("Admit(%x at %s) = %v, want nil", h.From, h.PeerURLs, err)
	}
}

// linked returns the IDs of the peers that have a link.
func (g *testGate) linked() []uint64 { return slices.Sorted(maps.Keys(g.links.addrs)) }

func TestAdmit(t *testing.T) {
	with := func(h *transport.Hello, change func(*transport.Hello)) *transport.Hello { change(h); return h }
	for _, test := range []struct {
		name  string
		hello *transport.Hello
		want  string // the reason of the refusal
	}{
		{"a member", hello(2, "http://m2:2380"), ""},
		{"a removed member", hello(5, "http://m2:2380"), transport.ReasonRemoved},
		{"an unregistered ID at a registered host", hello(9, "http://m2:1"), ""},
		{"an unregistered ID elsewhere", hello(9, "http://m9:2380"), transport.ReasonUnknown},
		{"another data directory", with(hello(2, "http://m2:2380"), func(h *transport.Hello) { h.Instance = "other" }), transport.ReasonLostData},
		{"an older data directory", with(hello(3, "http://m3:2380"), func(h *transport.Hello) { h.Log.Boot = "old" }), transport.ReasonLostData},
		{"a version that does not know the cluster version", with(hello(2, "http://m2:2380"), func(h *transport.Hello) { h.ClusterVersion = store.ClusterVersionNewest - 1 }), transport.ReasonOther},
	} {
		g := newGate(false)
		g.store.members.Removed[5] = true
		g.mustAdmit(t, with(hello(3, "http://m3:2380"), func(h *transport.Hello) { h.Log = transport.DiskState{Boot: "new", Term: 2, Commit: 7, Last: 9} }))
		err := g.Admit(test.hello)
		reason := ""
		if refusal, ok := err.(*transport.Refusal); ok { //nolint:errorlint // a refusal goes to the peer as it is
			reason = refusal.Reason
		}
		if reason != test.want || (err == nil) != (test.want == "") {
			t.Errorf("%s: Admit() = %v, want a refusal for %q", test.name, err, test.want)
		}
	}
}

// An unregistered ID leaves no link and no record behind unless it names a registered host, and then the newest few do
// until they disconnect.
func TestUnregisteredPeersLeaveNothingBehind(t *testing.T) {
	g := newGate(false)
	for i := range uint64(2000) {
		if err := g.Admit(hello(10+i, "http://elsewhere:2380")); err == nil {
			t.Fatal("Admit() of an ID elsewhere = nil, want a refusal")
		}
	}
	// It is accepted for its host, but is not dialled, since one of its URLs is invalid.
	for i := range uint64(100) {
		g.mustAdmit(t, hello(10+i, "http://m2:1,ftp://m2:1"))
	}
	if got := g.linked(); !slices.Equal(got, []uint64{2, 3}) || len(g.rollback.mu.records) > 0 {
		t.Errorf("links to %v and %d records, want the members' links and no record", got, len(g.rollback.mu.records))
	}
	for i := range uint64(10 * maxCallers) {
		g.mustAdmit(t, hello(10+i, "http://m2:1"))
	}
	if got := g.linked(); len(got) != 2+maxCallers || got[2] != 10+9*maxCallers || len(g.rollback.mu.records) != maxCallers {
		t.Errorf("links to %v and %d records, want the newest %d unregistered peers", got, len(g.rollback.mu.records), maxCallers)
	}
	for i := range uint64(10 * maxCallers) {
		if !g.routes.Disconnected(10 + i) {
			t.Errorf("Disconnected() of an unregistered peer = false")
		}
	}
	if got := g.linked(); !slices.Equal(got, []uint64{2, 3}) {
		t.Errorf("links to %v after all have disconnected, want 2 and 3", got)
	}
}

// A registered member that has moved stays dialled where its hello says, however many unregistered IDs come: it stays
// connected, so it does not send its hello again.
func TestUnregisteredPeersDoNotReplaceAMember(t *testing.T) {
	g := newGate(false)
	g.mustAdmit(t, hello(2, "http://elsewhere:1"))
	for i := range uint64(2 * maxCallers) {
		g.mustAdmit(t, hello(10+i, "http://m3:1"))
	}
	if got := g.links.addrs[2]; !slices.Equal(got, []string{"m2:2380", "elsewhere:1"}) || g.routes.Disconnected(2) {
		t.Errorf("the member that has moved is dialled at %v, want where it is registered and where it says", got)
	}
	if got := g.linked(); len(got) != 2+maxCallers {
		t.Errorf("links to %v, want the members and %d more", got, maxCallers)
	}
	g.store.set(registry(store.Member{ID: 1}, store.Member{ID: 2, PeerURLs: []string{"http://elsewhere:1"}}))
	g.routes.RegistryChanged()
	if got := g.links.addrs[2]; !slices.Equal(got, []string{"elsewhere:1"}) {
		t.Errorf("the member is dialled at %v once it is registered there, want only there", got)
	}
}

// Links follow the registry, and the supervisor is told of each change.
func TestLinksFollowTheRegistry(t *testing.T) {
	g := newGate(false, memberdir.Member{Name: "m3", PeerURLs: peerURLs("m3b")})
	if got := g.links.addrs; len(got) != 2 || !slices.Equal(got[3], []string{"m3:2380", "m3b:2380"}) || g.changes != 1 {
		t.Errorf("links to %v with %d calls of Changed, want the other members, also where the configuration has them", got, g.changes)
	}
	next := registry(store.Member{ID: 1}, store.Member{ID: 2, PeerURLs: peerURLs("m2")}, store.Member{ID: 4, PeerURLs: peerURLs("m4")})
	next.Removed[3] = true
	g.store.set(next)
	g.routes.RegistryChanged()
	if got := g.linked(); !slices.Equal(got, []uint64{2, 4}) || g.changes != 2 {
		t.Errorf("links to %v, want 2 and 4", got)
	}
	const advice = "found a cluster of one again"
	if g.routes.RegistryChanged(); strings.Count(g.log.String(), advice) != 1 {
		t.Errorf("the log has %s, want one line about the configuration of a single member", g.log.String())
	}
}

// A member that is removed while its hello is being checked gets no link.
func TestAMemberThatIsRemovedMeanwhileGetsNoLink(t *testing.T) {
	g := newGate(false)
	removed := &store.Members{ByID: maps.Clone(g.store.members.ByID), Removed: map[uint64]bool{3: true}}
	delete(removed.ByID, 3)
	g.cfg.IsCurrent = func() bool { // the last step before the routes
		g.store.set(removed)
		g.routes.RegistryChanged()
		return true
	}
	if err := g.Admit(hello(3, "http://elsewhere:1")); err != nil {
		t.Errorf("Admit() of a member that was registered when it came = %v", err)
	}
	if got := g.linked(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("links to %v, want 2 only", got)
	}
}

// A refusal as removed or wiped counts if the peer is registered and, without certificates, is at a known place.
func TestBelievedPeers(t *testing.T) {
	for _, certificates := range []bool{false, true} {
		g := newGate(certificates)
		g.store.members.Removed[5] = true
		g.mustAdmit(t, hello(2, "http://elsewhere:1"))
		if !certificates {
			g.mustAdmit(t, hello(9, "http://m3:1"))
		}
		for id, want := range map[uint64]bool{2: certificates, 3: true, 5: false, 8: false, 9: false} {
			if got := g.routes.Believes(id); got != want {
				t.Errorf("certificates %v: Believes(%d) = %v, want %v", certificates, id, got, want)
			}
		}
	}
}

// With certificates Admit counts on the transport, which has checked the certificate, and not on the URLs.
func TestCertificatesReplaceURLs(t *testing.T) {
	g := newGate(true)
	g.mustAdmit(t, hello(9, "http://elsewhere:1"))
	if got := g.linked(); !slices.Equal(got, []uint64{2, 3, 9}) {
		t.Errorf("links to %v, want one to the peer whose certificate was accepted", got)
	}
	if refused := g.cfg.List.Known().MayConnect(9, admission.Claimed([]string{"http://elsewhere:1"})); refused == nil {
		t.Error("without certificates the peer would be accepted, so this shows nothing")
	}
}

// A member that advertises other URLs than it is registered with is named once, but not by a registry that may be old.
func TestAMovedMemberIsLogged(t *testing.T) {
	g := newGate(false)
	g.log.Reset()
	g.current = false
	m := store.Member{ID: 2, Name: "m2", PeerURLs: []string{"http://old:2380"}}
	g.adviseMoved(&m, "http://new:2380")
	g.current = true
	g.adviseMoved(&m, "http://old:2380")
	g.adviseMoved(&m, "https://old:2380")
	g.adviseMoved(&m, "")
	g.adviseMoved(&store.Member{}, "http://new:2380")
	if g.log.Len() != 0 {
		t.Errorf("the log has %s, want nothing about a member that has not moved", g.log.String())
	}
	for range 2 {
		g.adviseMoved(&m, "http://new:2380")
	}
	g.links.hellos[3] = *hello(3, "http://m3b:2380")
	g.AdviseAllMoved(g.links.Peers(), peerURLs("m1b"))
	for what, want := range map[string]int{"a member advertises": 3, "m2 (2)": 1, "m3 (3)": 1, "m1 (1)": 1, "member update 2 --peer-urls=http://new:2380": 1} {
		if got := strings.Count(g.log.String(), what); got != want {
			t.Errorf("%d lines with %q, want %d: %s", got, what, want, g.log.String())
		}
	}
}
