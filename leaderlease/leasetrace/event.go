package leasetrace

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Start is the initial state of a Lease.
type Start struct {
	// ID is the node's raft ID. Incarnation is that of its clock; it identifies the process.
	ID          uint64
	Incarnation core.Incarnation
	// At is the clock reading at New, Term the term in storage.
	At   core.Instant
	Term uint64
	// Duration, MaxClockSkew and MaxPromise are Config's. TransferTimeout is the time in which
	// a transfer can succeed, Hold the restart hold, 0 for none. Saved is the longest promise
	// in Config.Promises, 0 without one.
	Duration, MaxClockSkew, MaxPromise, TransferTimeout, Hold, Saved time.Duration
}

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events, and the fields that each fills in besides Seq, At and Kind.
const (
	// KindNone is the zero value, and no event.
	KindNone Kind = iota
	// KindVoters begins a configuration: Number voters follow, a KindVoter each. In
	// that Peer votes; Number is 1 for the incoming half, 2 for the outgoing one of a
	// joint configuration, 3 for both.
	KindVoters
	KindVoter
	// KindRaft is a change of the state of raft: Term, Peer is the leader,
	// Role, and OK that the leader has committed an entry of its own term.
	KindRaft
	// KindDurable means that storage holds a term. The node may grant from here on.
	KindDurable
	// KindSaving begins to save the longest promise, Duration. KindSaved ends the save; OK
	// means that it is durable. KindSaved has no reading of the clock.
	KindSaving
	KindSaved
	// KindProbe is a probe in a heartbeat to Peer in Term: Instant is the send instant,
	// Duration the requested promise.
	KindProbe
	// KindPromise is the decision about a received probe of Peer in Term: Number identifies the
	// process of Peer, 0 if it is unknown. OK means that the promise was made.
	KindPromise
	// KindGrant is a grant in a heartbeat response to Peer in Term: Instant and Duration are
	// the promise's, Reading is the voter's clock, Number its incarnation.
	KindGrant
	// KindCount is the receipt of a grant of Peer, in a message of Term. OK means that the
	// grant moved the end of the lease.
	KindCount
	// KindRelease is a release in a MsgTimeoutNow to Peer in Term: Instant is the released
	// instant, and At the reading at which the lease was given up.
	KindRelease
	// KindRequest is a request by Peer for a vote or a campaign, in Message and of Term.
	// OK means that raft may see it. Instant and Number are the instant and the term of
	// the release in the request, or 0.
	KindRequest
	// KindVoteIn is a granted vote or pre-vote of Peer for this node, in Message and of Term.
	// OK means that raft may see it.
	KindVoteIn
	// KindCandidacy is a request for a vote or a pre-vote of Term to Peer, in Message. OK means
	// that it may leave. Instant and Number are those of the release in the request.
	KindCandidacy
	// KindVoteOut is a granted vote or pre-vote of Term to Peer, in Message. OK means that it
	// may leave.
	KindVoteOut
	// KindTick is a tick of a sole voter that does not lead. OK means that raft may tick.
	KindTick
	// KindView is the lease that readers see from here on, until the next KindView: Term,
	// Status, and Instant is its end, core.Forever if a sole voter holds it. Reading is when
	// the view was made, which is At unless the clock cannot be read.
	KindView
	// KindHeld means that the lease of Term was gained, if OK, or else lost because of Status.
	KindHeld
	// KindClockFailed, KindClockBack and KindClockDisrupted are faults that a reading of the
	// clock has shown. KindClockRead means that the clock can be read again.
	KindClockFailed
	KindClockBack
	KindClockDisrupted
	KindClockRead
	// KindInvalidate and KindClose are calls of Invalidate and Close. KindDisk is a call of
	// SetDiskStalled with OK.
	KindInvalidate
	KindClose
	KindDisk
	// KindConfPending has OK set if a configuration change is open, KindDisabled if leases are
	// off, by Config or because of a misuse.
	KindConfPending
	KindDisabled
	// KindProcessDied is a call of ProcessDied for a process of Peer; Number identifies the
	// process. OK means that the death voids the promise to that process, of Term. Traces
	// on disk call this kind "obituary".
	KindProcessDied

	// NumKinds is the number of kinds.
	NumKinds = int(KindProcessDied) + 1
)

var kindNames = [NumKinds]string{
	"none", "voters", "voter", "raft", "durable", "saving", "saved", "probe", "promise", "grant", "count", "release", "request", "vote_in",
	"candidacy", "vote_out", "tick", "view", "held", "clock_failed", "clock_back", "clock_disrupted", "clock_read",
	"invalidate", "close", "disk", "conf_pending", "disabled", "obituary",
}

// String returns the name used in traces on disk.
func (k Kind) String() string {
	if int(k) < NumKinds {
		return kindNames[k]
	}
	return "unknown"
}

// Event is a decision or an input of a Lease. It has no keys, values or names. The comment of
// its Kind describes its fields; the other fields are 0.
type Event struct {
	// Seq counts the events of a Lease from 1. A missing number is a gap in the trace.
	Seq uint64
	// At is the node's clock, 0 if it was not read. Events of one call have the same.
	At core.Instant
	// Peer is the other node.
	Peer     uint64
	Term     uint64
	Instant  core.Instant
	Duration time.Duration
	Reading  core.Instant
	Number   uint64
	Role     raft.StateType
	Message  raftpb.MessageType
	Kind     Kind
	Status   core.Status
	OK       bool
}
