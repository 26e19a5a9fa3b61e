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

// Tracer receives what a Lease decides and is told, on the raft side: a read that the lease
// serves is no event. *leasetrace.Trace is one: it keeps the newest events in memory.
//
// The Lease calls both methods with its lock held. They must return soon, must not block, and
// must not call the Lease.
type Tracer interface {
	// TraceStart is called once, by New, before any event. New fails with its error.
	TraceStart(start leasetrace.Start) error
	// TraceEvent is called for each event, in order. Seq is 0: a Tracer numbers events if it
	// needs to.
	TraceEvent(event leasetrace.Event)
}

// told is what the Lease has traced of raft's state and of its own, so that only a change is
// another event.
type told struct {
	ownCommit, pending, disabled, durable bool

	term, leader uint64
	role         raft.StateType
}

// traceLocked is for the raft side alone, never for the check of a lease.
func (l *Lease) traceLocked(e leasetrace.Event) {
	if t := l.cfg.Tracer; t != nil {
		t.TraceEvent(e)
	}
}

// traceMessageLocked tells what became of a message that helps to elect somebody, and
// of the release that it carries.
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

// traceProbeLocked tells of a probe on its way, or of one that has arrived from a process.
func (l *Lease) traceProbeLocked(k leasetrace.Kind, m *raftpb.Message, peer uint64, now core.Instant, p core.Probe, from ProcessID, ok bool) {
	if l.cfg.Tracer == nil {
		return
	}
	l.traceLocked(leasetrace.Event{
		Kind: k, At: now, Peer: peer, Term: m.GetTerm(), Instant: p.Sent, Duration: p.Duration, Number: shown(from), OK: ok,
	})
}

// shown is the number that stands for a process in a trace, whose events have room for 8 bytes. It is a hash, so that
// IDs that an embedder has not drawn at random differ as well.
func shown(p ProcessID) uint64 {
	if p == (ProcessID{}) {
		return 0
	}
	sum := sha256.Sum256(p[:])
	return binary.BigEndian.Uint64(sum[:])
}

// traceGrantLocked tells of a grant on its way, or of one that has arrived.
func (l *Lease) traceGrantLocked(k leasetrace.Kind, m *raftpb.Message, peer uint64, now core.Instant, g core.Grant, ok bool) {
	if l.cfg.Tracer == nil {
		return
	}
	l.traceLocked(leasetrace.Event{
		Kind: k, At: now, Peer: peer, Term: m.GetTerm(), Instant: g.Sent, Duration: g.Duration,
		Reading: g.Reading, Number: uint64(g.Incarnation), OK: ok,
	})
}

// beginTrace tells the Tracer what l begins with.
func (l *Lease) beginTrace(s *start, now core.Instant, p core.Params) error {
	if l.cfg.Tracer == nil {
		return nil
	}
	l.mu.told.term = l.mu.term
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

// traceVotersLocked tells of the configuration that counts from here on.
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

// traceRaftLocked tells what raft says of itself, if it has changed.
func (l *Lease) traceRaftLocked(now core.Instant) {
	if l.cfg.Tracer == nil {
		return
	}
	mu, told := &l.mu, &l.mu.told
	own := mu.lease.HasOwnTermCommit()
	if told.term != mu.term || told.leader != mu.leader || told.role != mu.role || told.ownCommit != own {
		told.term, told.leader, told.role, told.ownCommit = mu.term, mu.leader, mu.role, own
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindRaft, At: now, Term: mu.term, Peer: mu.leader, Role: mu.role, OK: own})
	}
	if mu.durable && !told.durable {
		told.durable = true
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindDurable, At: now})
	}
}

// traceFlagsLocked tells what a view follows from besides what was told before, if it
// has changed.
func (l *Lease) traceFlagsLocked(now core.Instant, pending, disabled bool) {
	if l.cfg.Tracer == nil {
		return
	}
	told := &l.mu.told
	if told.pending != pending {
		told.pending = pending
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindConfPending, At: now, OK: pending})
	}
	if told.disabled != disabled {
		told.disabled = disabled
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindDisabled, At: now, OK: disabled})
	}
}

// showLocked is the one place where readers get another view.
func (l *Lease) showLocked(v *view, now core.Instant) {
	l.view.Store(v)
	if l.cfg.Tracer != nil {
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindView, At: now, Term: v.Term, Instant: v.End, Reading: v.From, Status: v.Status})
	}
}

// traceTickLocked records a tick of a node that raft would elect without a message.
func (l *Lease) traceTickLocked(now core.Instant, may bool) {
	if l.cfg.Tracer != nil && l.mu.role != raft.StateLeader && l.soleVoterLocked() {
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindTick, At: now, OK: may})
	}
}
