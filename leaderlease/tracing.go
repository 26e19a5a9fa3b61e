package leaderlease

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Tracer receives the events and decisions of a Lease. A read under the lease is no event.
// *leasetrace.Trace is a Tracer that keeps the newest events in memory.
//
// The Lease calls both methods while locked. They must not block, and must not call the Lease.
type Tracer interface {
	// TraceStart is called once, by New, before any event. New fails with its error.
	TraceStart(start leasetrace.Start) error
	// TraceEvent is called for each event, in order. Its Seq is 0: the Tracer may number events.
	TraceEvent(event leasetrace.Event)
}

// traced is the state in the newest events, so that only a change makes another event.
type traced struct {
	ownCommit, pending, disabled, durable bool

	term, leader uint64
	role         raft.StateType
}

// traceLocked is not for TryRead and check, which run without the lock.
func (l *Lease) traceLocked(e leasetrace.Event) {
	if t := l.cfg.Tracer; t != nil {
		t.TraceEvent(e)
	}
}

// traceMessageLocked records whether a message that helps an election passed, and the release that it carries.
func (l *Lease) traceMessageLocked(k leasetrace.Kind, m *raftpb.Message, peer uint64, now core.Instant, rel *core.Release, ok bool) {
	if l.cfg.Tracer == nil {
		return
	}
	e := leasetrace.Event{Kind: k, At: now, Peer: peer, Term: m.GetTerm(), Message: m.GetType(), OK: ok}
	if rel != nil {
		e.Instant, e.Number = rel.At, rel.Term
	}
	l.traceLocked(e)
}

// traceProbeLocked records an outbound probe, or an inbound one from a process.
func (l *Lease) traceProbeLocked(k leasetrace.Kind, m *raftpb.Message, peer uint64, now core.Instant, p core.Probe, from ProcessID, ok bool) {
	if l.cfg.Tracer == nil {
		return
	}
	l.traceLocked(leasetrace.Event{
		Kind: k, At: now, Peer: peer, Term: m.GetTerm(), Instant: p.Sent, Duration: p.Duration, Number: processNumber(from), OK: ok,
	})
}

// processNumber identifies a process in the events of a trace, which have room for 8 bytes. It is a hash, so that
// IDs that are not random also differ.
func processNumber(p ProcessID) uint64 {
	if p == (ProcessID{}) {
		return 0
	}
	sum := sha256.Sum256(p[:])
	return binary.BigEndian.Uint64(sum[:])
}

// traceGrantLocked records an outbound or inbound grant.
func (l *Lease) traceGrantLocked(k leasetrace.Kind, m *raftpb.Message, peer uint64, now core.Instant, g core.Grant, ok bool) {
	if l.cfg.Tracer == nil {
		return
	}
	l.traceLocked(leasetrace.Event{
		Kind: k, At: now, Peer: peer, Term: m.GetTerm(), Instant: g.Sent, Duration: g.Duration,
		Reading: g.Reading, Number: uint64(g.Incarnation), OK: ok,
	})
}

// beginTrace calls TraceStart with the state that l begins with.
func (l *Lease) beginTrace(s *start, now core.Instant, p core.Params) error {
	if l.cfg.Tracer == nil {
		return nil
	}
	l.mu.traced.term = l.mu.term
	begins := leasetrace.Start{
		ID: p.ID, Incarnation: l.nonce.incarnation(), At: now, Term: l.mu.term,
		Duration: p.Duration, MaxClockSkew: p.MaxClockSkew, MaxPromise: l.cfg.MaxPromise,
		TransferTimeout: p.TransferTimeout, Hold: s.hold,
	}
	if l.cfg.Promises != nil {
		begins.Saved = s.saved
	}
	if err := l.cfg.Tracer.TraceStart(begins); err != nil {
		return fmt.Errorf("leaderlease: start Config.Tracer: %w", err)
	}
	return nil
}

// traceVotersLocked records the configuration that counts from now on.
func (l *Lease) traceVotersLocked(cfg quorum.JointConfig, now core.Instant) {
	if l.cfg.Tracer == nil {
		return
	}
	half := make(map[uint64]uint64)
	for i := range cfg {
		for id := range cfg[i] {
			half[id] |= 1 << i
		}
	}
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindVoters, At: now, Number: uint64(len(half))})
	for _, id := range slices.Sorted(maps.Keys(half)) {
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindVoter, At: now, Peer: id, Number: half[id]})
	}
}

// traceRaftLocked records raft's state, if it has changed.
func (l *Lease) traceRaftLocked(now core.Instant) {
	if l.cfg.Tracer == nil {
		return
	}
	mu, old := &l.mu, &l.mu.traced
	own := mu.lease.HasOwnTermCommit()
	if old.term != mu.term || old.leader != mu.leader || old.role != mu.role || old.ownCommit != own {
		old.term, old.leader, old.role, old.ownCommit = mu.term, mu.leader, mu.role, own
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindRaft, At: now, Term: mu.term, Peer: mu.leader, Role: mu.role, OK: own})
	}
	if mu.durable && !old.durable {
		old.durable = true
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindDurable, At: now})
	}
}

// traceFlagsLocked records the other inputs of a view, if they have changed.
func (l *Lease) traceFlagsLocked(now core.Instant, pending, disabled bool) {
	if l.cfg.Tracer == nil {
		return
	}
	old := &l.mu.traced
	if old.pending != pending {
		old.pending = pending
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindConfPending, At: now, OK: pending})
	}
	if old.disabled != disabled {
		old.disabled = disabled
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindDisabled, At: now, OK: disabled})
	}
}

// storeViewLocked is the only place that changes the view of readers.
func (l *Lease) storeViewLocked(v *view, now core.Instant) {
	l.view.Store(v)
	if l.cfg.Tracer != nil {
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindView, At: now, Term: v.Term, Instant: v.End, Reading: v.From, Status: v.Status})
	}
}

// traceTickLocked records a tick of a sole voter, which raft would elect without a message.
func (l *Lease) traceTickLocked(now core.Instant, may bool) {
	if l.cfg.Tracer != nil && l.mu.role != raft.StateLeader && l.soleVoterLocked() {
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindTick, At: now, OK: may})
	}
}
