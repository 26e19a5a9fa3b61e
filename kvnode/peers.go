package kvnode

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
)

// logLimits limit the log lines about each peer, one limit for each condition. disk is about this member.
type logLimits struct {
	dropped, parameters, disk, refused lifecycle.LogLimit
	died                               lifecycle.LogLimit // death notices that void no promise
}

// secure makes Listener and Dial use PeerTLS. It runs before the member joins, because that dials, too.
func (c *Config) secure() {
	if c.PeerTLS != nil {
		c.Listener, c.Dial = c.PeerTLS.Listener(c.Listener), c.PeerTLS.Dialer(c.Dial)
	}
}

// requiresCertificates reports whether peers must prove their IDs with certificates.
func (c *Config) requiresCertificates() bool { return c.PeerTLS != nil && c.PeerTLS.RequiresCert() }

// peers is the transport.Handler of a node.
type peers struct{ node *Node }

var _ transport.Handler = peers{}

// authenticate checks the certificate at the other end of conn by the rules of package admission.
func (p peers) authenticate(conn net.Conn, h transport.Hello) error {
	if !p.node.cfg.requiresCertificates() {
		return nil
	}
	leaf, err := tlsconf.Leaf(conn)
	if err != nil {
		return err
	}
	return p.node.members.Known().MayConnect(h.From, admission.Certified(leaf))
}

// Admit implements transport.Handler.
func (p peers) Admit(h transport.Hello) error {
	select {
	case <-p.node.begun:
	case <-p.node.life.Stopping():
		return ErrStopped
	}
	return p.node.membership.gate.Admit(&h)
}

// Refused implements transport.Handler.
func (p peers) Refused(peer uint64, err error) {
	var refused *transport.RefusedError
	if !errors.As(err, &refused) {
		return
	}
	switch reason, believed := refused.Reason, p.node.membership.routes.Believes(peer); {
	case reason == transport.ReasonLostData && believed:
		p.node.membership.dataLoss.RefusedForLoss(refused)
	case reason == transport.ReasonRemoved && believed:
		p.node.membership.removals.RefusedBy(peer)
	case reason == transport.ReasonCluster:
		now := time.Now()
		p.node.calls.Push(func(l *raftLoop) { l.admission.PeerForeign(refused, now) })
	default:
		p.node.calls.Push(func(l *raftLoop) { l.admission.PeerRefused(peer) })
		if p.node.logLimits.refused.Allow(peer) {
			p.node.log.Error("refused by a peer", "peer", p.node.members.Label(peer), "error", err)
		}
	}
}

// Connected implements transport.Handler.
func (p peers) Connected(peer uint64, h transport.Hello) {
	p.node.logLimits.refused.Reset(peer)
	if lease := p.node.lease.Info(); (h.Promise != lease.Duration || h.Skew != lease.MaxClockSkew) && p.node.logLimits.parameters.Allow(peer) {
		// This is safe, since each probe asks for the promise that its leader's lease needs. But it is rarely
		// intended.
		p.node.log.Warn("a peer has other lease parameters", "peer", p.node.members.Label(peer),
			"duration", h.Promise, "margin", h.Skew, "own_duration", lease.Duration, "own_margin", lease.MaxClockSkew)
	}
	p.node.calls.Push(func(l *raftLoop) { l.admission.PeerAccepted(peer) })
}

// Gone implements transport.Handler.
func (p peers) Gone(peer uint64) {
	if p.node.membership.routes.Disconnected(peer) {
		p.node.membership.rollback.Forget(peer)
	}
	if !p.node.cfg.IgnoreClosed {
		p.node.calls.Push(func(l *raftLoop) { l.connectionsEnded(peer) })
	}
}

// Died implements transport.Handler.
func (p peers) Died(peer uint64, process transport.ProcessID) {
	p.node.calls.Push(func(l *raftLoop) { l.processDied(peer, leaderlease.ProcessID(process)) })
}

// Receive implements transport.Handler. The lease sees m here and not on the loop: a promise counts from the arrival
// of the heartbeat, however long the loop takes.
func (p peers) Receive(m *raftpb.Message, process transport.ProcessID) {
	if !p.node.lease.Incoming(m, leaderlease.ProcessID(process)) {
		return
	}
	into := p.node.loop.control
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

// checkIndex returns an error for a message on which raft would panic because it is about entries that this member's
// log does not have.
//
// Raft ignores a MsgAppResp unless this member leads in the message's term. So a late one, for example after a restart
// of a leader, is harmless.
func (l *raftLoop) checkIndex(m *raftpb.Message) error {
	err := transport.ValidateAgainst(m, l.last.Load())
	if err != nil && m.GetType() == raftpb.MsgAppResp {
		if s := l.raw.BasicStatus(); s.RaftState != raft.StateLeader || s.GetTerm() != m.GetTerm() {
			return nil
		}
	}
	return err
}

// rejectIndex drops a message that checkIndex refuses. Unless its sender is faulty, a refused heartbeat, however
// old, proves that this member has lost data: a leader sends a commit index only up to what this member has
// acknowledged, and committed entries are never truncated.
func (l *raftLoop) rejectIndex(m *raftpb.Message, err error) {
	switch {
	case m.GetType() == raftpb.MsgHeartbeat:
		l.dataLoss.StopMember(m.GetFrom(), true, fmt.Errorf("it had acknowledged index %d to member %s, and its log ends at %d: an old image of its disk was restored, or the disk has lost what it had written",
			m.GetCommit(), l.members.Describe(m.GetFrom()), l.last.Load()))
	case l.logLimits.dropped.Allow(m.GetFrom()):
		l.log.Error("message dropped", "from", l.members.Describe(m.GetFrom()), "type", m.GetType(), "error", err)
	}
}
