package leasetrace

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Start is what a Lease begins with.
type Start struct {
	// ID is the node's raft ID, Incarnation that of its clock, which names the process.
	ID          uint64
	Incarnation core.Incarnation
	// At is the clock at New, Term the one in storage.
	At   core.Instant
	Term uint64
	// Duration, MaxClockSkew and MaxPromise are Config's, TransferTimeout is for how
	// long a transfer can succeed, Hold the restart hold, 0 for none. Saved is the longest
	// promise that Promises remembers, 0 without one.
	Duration, MaxClockSkew, MaxPromise, TransferTimeout, Hold, Saved time.Duration
}

// Kind says what an Event tells.
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
	// KindRaft is what raft says of itself, when it changes: Term, Peer is the leader,
	// Role, and OK that the leader has committed an entry of its own term.
	KindRaft
	// KindDurable means that storage holds a term: the node grants from here on.
	KindDurable
	// KindSaving begins to save that the longest promise is Duration, and KindSaved ends
	// that: OK that it is durable. The latter has no reading of the clock.
	KindSaving
	KindSaved
	// KindProbe leaves with a heartbeat to Peer in Term: Instant is the send instant,
	// Duration what it asks for.
	KindProbe
	// KindPromise answers such a probe of Peer in Term: Number stands for the process of
	// Peer, 0 if it is unknown; OK that the promise was made.
	KindPromise
	// KindGrant leaves with a heartbeat response to Peer in Term: Instant and Duration
	// are the promise's, Reading is the voter's clock, Number its incarnation.
	KindGrant
	// KindCount takes such a grant of Peer's, in a message of Term; OK that it moved
	// the end of the lease.
	KindCount
	// KindRelease leaves with a MsgTimeoutNow to Peer in Term: Instant is what it
	// releases, and At the reading that the lease was given up at.
	KindRelease
	// KindRequest is a request by Peer for a vote or a campaign, in Message and of Term.
	// OK means that raft may see it. Instant and Number are the instant and the term of
	// the release in the request, or 0.
	KindRequest
	// KindVoteIn is a granted vote or pre-vote of Peer's for this node, in Message and of
	// Term: OK that raft may see it.
	KindVoteIn
	// KindCandidacy is a request for a vote or a pre-vote of Term on its way to Peer, in
	// Message: OK that it may leave. Instant and Number are of the release passed on.
	KindCandidacy
	// KindVoteOut is a granted vote or pre-vote of Term on its way to Peer, in Message: OK
	// that it may leave.
	KindVoteOut
	// KindTick is a tick of a sole voter that does not lead: OK that raft may tick.
	KindTick
	// KindView is the lease that readers see from here on, until the next KindView: Term,
	// Status, and Instant is its end, core.Forever if a sole voter holds it. Reading is when
	// the view was made, which is At unless the clock cannot be read.
	KindView
	// KindHeld means that the lease of Term was gained, if OK, or else lost to Status.
	KindHeld
	// KindClockFailed, KindClockBack and KindClockDisrupted are what a reading of the
	// clock has shown, KindClockRead that it can be read again.
	KindClockFailed
	KindClockBack
	KindClockDisrupted
	KindClockRead
	// KindInvalidate and KindClose are calls of Invalidate and Close, KindDisk of
	// SetDiskStalled: OK that it has.
	KindInvalidate
	KindClose
	KindDisk
	// KindConfPending says by OK whether a configuration change is open, KindDisabled
	// whether leases are off, by Config or by a misuse.
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

// Event is what a Lease decided or was told. It has no keys, values or names. Its Kind
// says what its fields mean; the others are 0.
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
