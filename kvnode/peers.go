package kvnode

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/peerurl"
	"github.com/leaderlease/go/kvnode/transport"
)

// peers is the node as its transport sees it.
type peers Node

var _ transport.Handler = (*peers)(nil)

func (p *peers) node() *Node { return (*Node)(p) }

// Admit implements transport.Handler. It is what keeps a member away that was
// removed, or that has lost its directory: its votes and promises are gone, so
// it could help elect a second leader.
func (p *peers) Admit(h transport.Hello) error {
	n := p.node()
	select {
	case <-n.begun:
	case <-n.stopping:
		return ErrStopped
	}
	m, err := n.book.peer(h.From)
	if err != nil {
		return err
	}
	if !isInstance(m.Instance, h.Instance) {
		return wiped(h)
	}
	if err := knowsFormat(h, n.store.Format()); err != nil {
		return err
	}
	first, err := n.met.meet(h.From, h.Instance)
	if saved := n.checkpoints.saved.Load(); err != nil && saved != nil && h.Instance != "" && saved.ByID[h.From].Instance == h.Instance {
		first, err = h.Instance, nil // the last checkpoint has it, so it is durable there
	}
	if err != nil {
		return err
	}
	if first != h.Instance {
		return wiped(h)
	}
	if err := n.loop.vouched.setBack(h); err != nil {
		return err
	}
	n.adviseMoved(&m, h.PeerURLs)
	if _, known := n.book.familiar(h.From); known {
		if !peerurl.AreAmong(strings.Split(h.PeerURLs, ","), m.PeerURLs) {
			n.book.askAround() // it has moved, unless it is wrong about itself
		}
		return nil
	}
	return n.routes.add(h.From)
}

func wiped(h transport.Hello) error {
	return &transport.Refusal{Reason: transport.ReasonWiped, Text: fmt.Sprintf(
		"member %x (%q) has been in the cluster with another data directory; its votes and promises are lost, so remove it and add it anew", h.From, h.Name)}
}

// Refused implements transport.Handler.
func (p *peers) Refused(peer uint64, err error) {
	n := p.node()
	var refused *transport.RefusedError
	if !errors.As(err, &refused) {
		return
	}
	switch reason, say := refused.Reason, n.book.hasSay(peer); {
	case reason == transport.ReasonWiped && say:
		n.lose(peer, n.lacks(refused), err)
	case reason == transport.ReasonRemoved && say:
		n.farewells.dismissed(peer)
	case reason == transport.ReasonCluster:
		now := time.Now()
		n.calls.put(func(l *raftLoop) { l.refusedAsForeign(refused, now) })
	default:
		n.calls.put(func(l *raftLoop) { l.admission.Refused(peer) })
		switch {
		case !n.quiet.refused.loud(peer):
		case refused.Reason == transport.ReasonUnknown: // mostly it is known a moment later
			n.log.Warn("not known to a peer yet", "peer", n.book.called(peer), "error", err)
		default:
			n.log.Error("refused by a peer", "peer", n.book.called(peer), "error", err)
		}
	}
}

// Connected implements transport.Handler.
func (p *peers) Connected(peer uint64, h transport.Hello) {
	n := p.node()
	n.quiet.refused.forget(peer)
	if lease := n.lease.Info(); (h.Promise != lease.Duration || h.Skew != lease.MaxClockSkew) && n.quiet.parameters.loud(peer) {
		// Each member serves by its own parameters and promises what it is asked
		// for, so this is safe; but nobody wants it.
		n.log.Warn("a peer has other lease parameters", "peer", n.book.called(peer),
			"duration", h.Promise, "margin", h.Skew, "own_duration", lease.Duration, "own_margin", lease.MaxClockSkew)
	}
	n.calls.put(func(l *raftLoop) { l.do(l.admission.Accepted(peer)) })
}

// Receive implements transport.Handler. The lease looks at m here: a promise
// counts from the arrival, and heartbeats must not wait for the loop.
func (p *peers) Receive(m *raftpb.Message) {
	n := p.node()
	if !n.lease.Incoming(m) {
		return
	}
	into := n.loop.urgent
	switch m.GetType() {
	case raftpb.MsgProp:
		if !n.loop.intake.enter(m, n.stopping) {
			return
		}
		into = n.loop.bulk
	case raftpb.MsgApp:
		into = n.loop.bulk
	}
	select {
	case into <- m:
	case <-n.stopping:
	}
}

// ReceiveSnapshot implements transport.Handler.
func (p *peers) ReceiveSnapshot(m *raftpb.Message, size int64, state io.Reader) error {
	n := p.node()
	if !n.received.busy.CompareAndSwap(false, true) {
		return errors.New("another snapshot is being received")
	}
	defer n.received.busy.Store(false)
	if n.quiet.received.loud(m.GetFrom()) {
		n.log.Info("receives a snapshot", "from", n.book.called(m.GetFrom()), "index", m.GetSnapshot().GetMetadata().GetIndex(), "bytes", size)
	}
	if m.GetSnapshot().GetMetadata().GetIndex() <= n.store.Applied() {
		// Its acknowledgement was lost. Raft does not take it, and says how far it is.
		if _, err := io.Copy(io.Discard, state); err != nil {
			return err
		}
		p.Receive(m)
		return nil
	}
	if err := n.received.receive(m, state); err != nil {
		return err
	}
	p.Receive(m)
	return nil
}

// Unreachable implements transport.Handler.
func (p *peers) Unreachable(peer uint64) {
	n := p.node()
	n.calls.put(func(l *raftLoop) { l.raw.ReportUnreachable(peer) })
	if !n.leads() && n.quiet.sought.loud(peer) { // a leader's registry is the newest
		n.book.askAround()
	}
}

// SnapshotSent implements transport.Handler.
func (p *peers) SnapshotSent(peer uint64, err error) { p.node().snapshots.report(peer, err) }
