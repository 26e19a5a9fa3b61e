package kvnode

import (
	"errors"
	"io"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
)

// peers is the node as its transport sees it.
type peers struct{ node *Node }

var _ transport.Handler = peers{}

// Admit implements transport.Handler by the rules of package admission. It keeps a member away that was removed, or
// that has lost its directory: its votes and promises are gone, so it could help elect a second leader.
func (p peers) Admit(h transport.Hello) error {
	n := p.node
	select {
	case <-n.begun:
	case <-n.life.Stopping():
		return ErrStopped
	}
	urls := strings.Split(h.PeerURLs, ",")
	proof := admission.Claimed(urls)
	if n.cfg.requiresCertificates() {
		proof = admission.Accepted()
	}
	members := n.book.members()
	if err := members.MayConnect(h.From, proof); err != nil {
		return err
	}
	instance, err := n.instanceOf(h.From)
	if err == nil {
		err = admission.CheckInstance(&h, instance)
	}
	if err == nil {
		err = knowsFormat(h, n.store.Format())
	}
	if err == nil {
		err = n.loop.witness.setBack(h)
	}
	if err != nil {
		return err
	}
	m, _ := members.Registered(h.From)
	n.adviseMoved(&m, h.PeerURLs)
	n.loop.witness.forget(n.routes.called(h.From, urls)...)
	return nil
}

// Refused implements transport.Handler.
func (p peers) Refused(peer uint64, err error) {
	var refused *transport.RefusedError
	if !errors.As(err, &refused) {
		return
	}
	switch reason, counts := refused.Reason, p.node.routes.counts(peer); {
	case reason == transport.ReasonWiped && counts:
		p.node.lose(peer, p.node.lacks(refused), err)
	case reason == transport.ReasonRemoved && counts:
		p.node.farewells.dismissed(peer)
	case reason == transport.ReasonCluster:
		now := time.Now()
		p.node.calls.Push(func(l *raftLoop) { l.refusedAsForeign(refused, now) })
	default:
		p.node.calls.Push(func(l *raftLoop) { l.admission.Refused(peer) })
		if p.node.logLimits.refused.Allow(peer) {
			p.node.log.Error("refused by a peer", "peer", p.node.book.called(peer), "error", err)
		}
	}
}

// Connected implements transport.Handler.
func (p peers) Connected(peer uint64, h transport.Hello) {
	p.node.logLimits.refused.Reset(peer)
	if lease := p.node.lease.Info(); (h.Promise != lease.Duration || h.Skew != lease.MaxClockSkew) && p.node.logLimits.parameters.Allow(peer) {
		// Each member serves by its own parameters and promises what it is asked
		// for, so this is safe; but nobody wants it.
		p.node.log.Warn("a peer has other lease parameters", "peer", p.node.book.called(peer),
			"duration", h.Promise, "margin", h.Skew, "own_duration", lease.Duration, "own_margin", lease.MaxClockSkew)
	}
	p.node.calls.Push(func(l *raftLoop) { l.do(l.admission.Accepted(peer)) })
}

// Gone implements transport.Handler.
func (p peers) Gone(peer uint64) {
	if p.node.routes.left(peer) {
		p.node.loop.witness.forget(peer)
	}
	if !p.node.cfg.IgnoreClosed {
		p.node.calls.Push(func(l *raftLoop) { l.connectionsEnded(peer) })
	}
}

// Died implements transport.Handler.
func (p peers) Died(peer uint64, process transport.ProcessID) {
	p.node.calls.Push(func(l *raftLoop) { l.processDied(peer, leaderlease.ProcessID(process)) })
}

// Receive implements transport.Handler. The lease looks at m here: a promise
// counts from the arrival, and heartbeats must not wait for the loop.
func (p peers) Receive(m *raftpb.Message, process transport.ProcessID) {
	if !p.node.lease.Incoming(m, leaderlease.ProcessID(process)) {
		return
	}
	into := p.node.loop.urgent
	switch m.GetType() {
	case raftpb.MsgProp:
		if !p.node.loop.quota.Acquire(m, p.node.life.Stopping()) {
			return
		}
		into = p.node.loop.bulk
	case raftpb.MsgApp:
		into = p.node.loop.bulk
	}
	select {
	case into <- m:
	case <-p.node.life.Stopping():
	}
}

// ReceiveSnapshot implements transport.Handler.
func (p peers) ReceiveSnapshot(m *raftpb.Message, size int64, state io.Reader) error {
	if err := p.node.received.Receive(m, size, state); err != nil {
		return err
	}
	p.Receive(m, transport.ProcessID{})
	return nil
}

// Unreachable implements transport.Handler.
func (p peers) Unreachable(peer uint64) {
	p.node.calls.Push(func(l *raftLoop) { l.raw.ReportUnreachable(peer) })
}

// SnapshotSent implements transport.Handler.
func (p peers) SnapshotSent(peer uint64, err error) { p.node.snapshots.Report(peer, err) }
