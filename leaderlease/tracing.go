package leaderlease

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// traceLocked is for the raft side alone, never for who checks a lease.
func (l *Lease) traceLocked(e TraceEvent) {
	if t := l.cfg.Trace; t != nil {
		t.add(&e)
	}
}

// traceMessageLocked tells what became of a message that helps to elect somebody, and
// of the release that it carries.
func (l *Lease) traceMessageLocked(k TraceKind, m *raftpb.Message, peer uint64, now core.Instant, rel *core.Release, ok bool) {
	if l.cfg.Trace == nil {
		return
	}
	e := TraceEvent{Kind: k, At: now, Peer: peer, Term: m.GetTerm(), Message: m.GetType(), OK: ok}
	if rel != nil {
		e.Instant, e.Number = rel.At, rel.Term
	}
	l.traceLocked(e)
}

// traceProbeLocked tells of a probe on its way, or of one that has arrived from a process.
func (l *Lease) traceProbeLocked(k TraceKind, m *raftpb.Message, peer uint64, now core.Instant, p core.Probe, from ProcessID, ok bool) {
	if l.cfg.Trace == nil {
		return
	}
	l.traceLocked(TraceEvent{
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
func (l *Lease) traceGrantLocked(k TraceKind, m *raftpb.Message, peer uint64, now core.Instant, g core.Grant, ok bool) {
	if l.cfg.Trace == nil {
		return
	}
	l.traceLocked(TraceEvent{
		Kind: k, At: now, Peer: peer, Term: m.GetTerm(), Instant: g.Sent, Duration: g.Duration,
		Reading: g.Reading, Number: uint64(g.Incarnation), OK: ok,
	})
}

// begin starts the trace of l.
func (t *Trace) begin(l *Lease, s *start, now core.Instant, p core.Params) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring) == 0 {
		return errors.New("leaderlease: Config.Trace keeps no events: make it with NewTrace")
	}
	if t.said.begun {
		return errors.New("leaderlease: Config.Trace is another Lease's: each start of a node needs one of its own")
	}
	t.said.begun, t.said.term = true, l.mu.term
	t.start = TraceStart{
		ID: p.ID, Incarnation: l.nonce.incarnation(), At: now, Term: l.mu.term,
		Duration: p.Duration, MaxClockSkew: p.MaxClockSkew, MaxPromise: l.cfg.MaxPromise,
		TransferTimeout: p.TransferTimeout, Hold: s.hold,
	}
	if l.cfg.Promises != nil {
		t.start.Saved = s.saved
	}
	return nil
}

// traceVotersLocked tells of the configuration that counts from here on.
func (l *Lease) traceVotersLocked(cfg quorum.JointConfig, now core.Instant) {
	if l.cfg.Trace == nil {
		return
	}
	half := make(map[uint64]uint64)
	for i := range cfg {
		for id := range cfg[i] {
			half[id] |= 1 << i
		}
	}
	l.traceLocked(TraceEvent{Kind: TraceVoters, At: now, Number: uint64(len(half))})
	for _, id := range slices.Sorted(maps.Keys(half)) {
		l.traceLocked(TraceEvent{Kind: TraceVoter, At: now, Peer: id, Number: half[id]})
	}
}

// traceRaftLocked tells what raft says of itself, if it has changed.
func (l *Lease) traceRaftLocked(now core.Instant) {
	t, mu := l.cfg.Trace, &l.mu
	if t == nil {
		return
	}
	own := mu.lease.HasOwnTermCommit()
	if t.said.term != mu.term || t.said.leader != mu.leader || t.said.role != mu.role || t.said.ownCommit != own {
		t.said.term, t.said.leader, t.said.role, t.said.ownCommit = mu.term, mu.leader, mu.role, own
		l.traceLocked(TraceEvent{Kind: TraceRaft, At: now, Term: mu.term, Peer: mu.leader, Role: mu.role, OK: own})
	}
	if mu.durable && !t.said.durable {
		t.said.durable = true
		l.traceLocked(TraceEvent{Kind: TraceDurable, At: now})
	}
}

// traceFlagsLocked tells what a view follows from besides what was told before, if it
// has changed.
func (l *Lease) traceFlagsLocked(now core.Instant, pending, disabled bool) {
	t := l.cfg.Trace
	if t == nil {
		return
	}
	if t.said.pending != pending {
		t.said.pending = pending
		l.traceLocked(TraceEvent{Kind: TraceConfPending, At: now, OK: pending})
	}
	if t.said.disabled != disabled {
		t.said.disabled = disabled
		l.traceLocked(TraceEvent{Kind: TraceDisabled, At: now, OK: disabled})
	}
}

// showLocked is the one place where readers get another view.
func (l *Lease) showLocked(v *view, now core.Instant) {
	l.view.Store(v)
	if l.cfg.Trace != nil {
		l.traceLocked(TraceEvent{Kind: TraceView, At: now, Term: v.Term, Instant: v.End, Reading: v.From, Status: v.Status})
	}
}

// traceTickLocked records a tick of a node that raft would elect without a message.
func (l *Lease) traceTickLocked(now core.Instant, may bool) {
	if l.cfg.Trace != nil && l.mu.role != raft.StateLeader && l.soleVoterLocked() {
		l.traceLocked(TraceEvent{Kind: TraceTick, At: now, OK: may})
	}
}
