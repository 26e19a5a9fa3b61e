package leaderlease

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/votes"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// releaseLocked gives the lease up before a MsgTimeoutNow leaves, and says so
// in it (L6).
func (l *Lease) releaseLocked(m *raftpb.Message, now core.Instant) {
	if m.GetTerm() != l.mu.lease.Term() {
		return
	}
	// The newest good reading is a lower bound of one that failed.
	if r := l.mu.lease.Release(max(now, l.mu.last)); r.At > 0 {
		attachRelease(m, r)
		l.traceMessageLocked(leasetrace.KindRelease, m, m.GetTo(), max(now, l.mu.last), &r, true)
	}
	l.stats.transfers.Add(1)
}

// releases reports whether r may ride on m: on the MsgTimeoutNow of its own
// term, or on a vote of the campaign that follows.
func releases(m *raftpb.Message, r core.Release) bool {
	switch m.GetType() {
	case raftpb.MsgTimeoutNow:
		return r.Term == m.GetTerm()
	case raftpb.MsgVote:
		return r.Term < m.GetTerm() && votes.OfTransfer(m)
	default:
		return false
	}
}
