package membership

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// GateConfig configures a Gate.
type GateConfig struct {
	List      *List
	Instances *Instances
	Rollback  *RollbackDetector
	Routes    *Routes
	// Certificates is set if the certificate of each peer is checked before Admit.
	Certificates bool
	// ClusterVersion returns the cluster version.
	ClusterVersion func() int64
	// IsCurrent is false while the registry may still catch up after the start, and so may have old URLs.
	IsCurrent func() bool
	Log       *slog.Logger
}

// Gate accepts or refuses peers that connect.
type Gate struct {
	cfg   GateConfig
	moved lifecycle.LogLimit
}

// NewGate returns a Gate.
func NewGate(cfg GateConfig) *Gate { return &Gate{cfg: cfg} }

// Admit returns nil if a peer with this hello may connect. If so, it passes the peer's URLs to Routes. It does not
// wait for the raft loop.
func (g *Gate) Admit(h *transport.Hello) error {
	urls := strings.Split(h.PeerURLs, ",")
	proof := admission.Claimed(urls)
	if g.cfg.Certificates {
		proof = admission.Accepted()
	}
	members := g.cfg.List.Known()
	if err := members.MayConnect(h.From, proof); err != nil {
		return err
	}
	instance, err := g.cfg.Instances.Of(h.From)
	if err != nil {
		return err
	}
	if err := admission.CheckInstance(h, instance); err != nil {
		return err
	}
	if err := checkClusterVersion(h, g.cfg.ClusterVersion()); err != nil {
		return err
	}
	if err := g.cfg.Rollback.Check(h); err != nil {
		return err
	}
	m, _ := members.Registered(h.From)
	g.adviseMoved(&m, h.PeerURLs)
	g.cfg.Rollback.Forget(g.cfg.Routes.RecordURLs(h.From, urls)...)
	return nil
}

// checkClusterVersion refuses a peer that does not know the cluster version. The peer would stop at the entry that
// raised it.
func checkClusterVersion(h *transport.Hello, version int64) error {
	if known := max(h.ClusterVersion, store.ClusterVersionFirst); known < version {
		return &transport.Refusal{Reason: transport.ReasonOther, Text: fmt.Sprintf(
			"member %x (%s) is of a version that knows cluster version %d, and the cluster has %d: start it with the version of the others",
			h.From, transport.Shown(h.Name), known, version)}
	}
	return nil
}

// adviseMoved logs that a member, which may be this one, advertises other peer URLs than the registry has. Members
// that join or start later go by the registry, and only an operator can change it. m is the zero value for an
// unregistered peer.
func (g *Gate) adviseMoved(m *store.Member, advertised string) {
	there := strings.Split(advertised, ",")
	if m.ID == 0 || advertised == "" || !g.cfg.IsCurrent() || peerurl.AreSame(m.PeerURLs, there) || !g.moved.Allow(m.ID) {
		return
	}
	g.cfg.Log.Warn("a member advertises other peer URLs than the cluster has",
		"peer", label(m.Name, m.ID), "cluster_has", m.PeerURLs, "advertises", there,
		"advice", fmt.Sprintf("if it has moved: member update %x --peer-urls=%s; if not, start it with the URLs that the cluster has", m.ID, advertised))
}

// AdviseAllMoved calls adviseMoved for the connected peers and for this member. It is called once the registry is
// current.
func (g *Gate) AdviseAllMoved(peers []transport.PeerStatus, ownURLs []string) {
	all := g.cfg.List.registry.Members().ByID
	for _, p := range peers {
		m := all[p.ID]
		g.adviseMoved(&m, p.Hello.PeerURLs)
	}
	self := all[g.cfg.List.self]
	g.adviseMoved(&self, strings.Join(ownURLs, ","))
}
