package leaderlease

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Trace keeps the newest events of one Lease (Config.Trace). Any goroutine may read it. A
// reader blocks the Lease only while its events are copied.
type Trace struct {
	start TraceStart // immutable, once New has returned

	// said is what the Lease has told of; under its lock.
	said struct {
		begun, ownCommit, pending, disabled, durable bool

		term, leader uint64
		role         raft.StateType
	}

	mu   sync.Mutex
	ring []TraceEvent
	next uint64     // the number of the next event
	view TraceEvent // the newest TraceView, which the ring may have lost
}

// NewTrace returns a trace that keeps so many events, at least 1, of 80 bytes each. It also
// keeps the newest TraceView, however old it is: the lease of a sole voter has no later one.
func NewTrace(events int) *Trace { return &Trace{ring: make([]TraceEvent, max(events, 1)), next: 1} }

// TraceStart is what a Lease begins with.
type TraceStart struct {
	// ID is the node's raft ID, Incarnation that of its clock, which names the process.
	ID          uint64
	Incarnation Incarnation
	// At is the clock at New, Term the one in storage.
	At   Instant
	Term uint64
	// Duration, MaxClockSkew and MaxPromise are Config's, TransferTimeout is for how
	// long a transfer can succeed, Hold the restart hold, 0 for none. Saved is the longest
	// promise that Promises remembers, 0 without one.
	Duration, MaxClockSkew, MaxPromise, TransferTimeout, Hold, Saved time.Duration
}

// TraceKind says what a TraceEvent tells.
type TraceKind uint8

// The kinds of events, and the fields that each fills in besides Seq, At and Kind.
const (
	// TraceNone is the zero value, and no event.
	TraceNone TraceKind = iota
	// TraceVoters begins a configuration: Number voters follow, a TraceVoter each. In
	// that Peer votes; Number is 1 for the incoming half, 2 for the outgoing one of a
	// joint configuration, 3 for both.
	TraceVoters
	TraceVoter
	// TraceRaft is what raft says of itself, when it changes: Term, Peer is the leader,
	// Role, and OK that an entry of the reign's own term is committed.
	TraceRaft
	// TraceDurable means that storage holds a term: the node grants from here on.
	TraceDurable
	// TraceSaving begins to save that the longest promise is Duration, and TraceSaved ends
	// that: OK that it is durable. The latter has no reading of the clock.
	TraceSaving
	TraceSaved
	// TraceProbe leaves with a heartbeat to Peer in Term: Instant is the send instant,
	// Duration what it asks for.
	TraceProbe
	// TracePromise answers such a probe of Peer in Term: Number stands for the process of
	// Peer, 0 if it is unknown; OK that the promise was made.
	TracePromise
	// TraceGrant leaves with a heartbeat response to Peer in Term: Instant and Duration
	// are the promise's, Reading is the voter's clock, Number its incarnation.
	TraceGrant
	// TraceCount takes such a grant of Peer's, in a message of Term; OK that it moved
	// the end of the lease.
	TraceCount
	// TraceRelease leaves with a MsgTimeoutNow to Peer in Term: Instant is what it
	// releases, and At the reading that the lease was given up at.
	TraceRelease
	// TraceRequest is a request of Peer to help elect somebody, in Message and of Term:
	// OK that raft may see it. Instant and Number are instant and term of the release
	// that it carries, or 0.
	TraceRequest
	// TraceVoteIn is a granted vote or pre-vote of Peer's for this node, in Message and of
	// Term: OK that raft may see it.
	TraceVoteIn
	// TraceCandidacy is a request for a vote or a pre-vote of Term on its way to Peer, in
	// Message: OK that it may leave. Instant and Number are of the release passed on.
	TraceCandidacy
	// TraceVoteOut is a granted vote or pre-vote of Term on its way to Peer, in Message: OK
	// that it may leave.
	TraceVoteOut
	// TraceTick is a tick of a sole voter that does not lead: OK that raft may tick.
	TraceTick
	// TraceView is the lease that readers see from here on, until the next TraceView: Term,
	// Status, and Instant is its end, core.Forever if a sole voter holds it. Reading is when
	// the view was made, which is At unless the clock cannot be read.
	TraceView
	// TraceHeld means that the lease of Term was gained, if OK, or else lost to Status.
	TraceHeld
	// TraceClockFailed, TraceClockBack and TraceClockDisrupted are what a reading of the
	// clock has shown, TraceClockRead that it can be read again.
	TraceClockFailed
	TraceClockBack
	TraceClockDisrupted
	TraceClockRead
	// TraceInvalidate and TraceClose are calls of Invalidate and Close, TraceDisk of
	// SetDiskStalled: OK that it has.
	TraceInvalidate
	TraceClose
	TraceDisk
	// TraceConfPending says by OK whether a configuration change is open, TraceDisabled
	// whether leases are off, by Config or by a misuse.
	TraceConfPending
	TraceDisabled
	// TraceObituary is a call of Obituary: Peer's process, for which Number stands, has died. OK that this has
	// voided the promise to it, of Term.
	TraceObituary

	// NumTraceKinds is the number of kinds.
	NumTraceKinds = int(TraceObituary) + 1
)

var traceNames = [NumTraceKinds]string{
	"none", "voters", "voter", "raft", "durable", "saving", "saved", "probe", "promise", "grant", "count", "release", "request", "vote_in",
	"candidacy", "vote_out", "tick", "view", "held", "clock_failed", "clock_back", "clock_disrupted", "clock_read",
	"invalidate", "close", "disk", "conf_pending", "disabled", "obituary",
}

// String returns the name used in traces on disk.
func (k TraceKind) String() string {
	if int(k) < NumTraceKinds {
		return traceNames[k]
	}
	return "unknown"
}

// TraceEvent is what a Lease decided or was told. It has no keys, values or names. Its Kind
// says what its fields mean; the others are 0.
type TraceEvent struct {
	// Seq counts the events of a Lease from 1. A missing number is a gap in the trace.
	Seq uint64
	// At is the node's clock, 0 if it was not read. Events of one call have the same.
	At Instant
	// Peer is the other node.
	Peer     uint64
	Term     uint64
	Instant  Instant
	Duration time.Duration
	Reading  Instant
	Number   uint64
	Role     raft.StateType
	Message  raftpb.MessageType
	Kind     TraceKind
	Status   Status
	OK       bool
}

// Start returns what the Lease began with, and whether there is one yet.
func (t *Trace) Start() (start TraceStart, begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.start, t.start.ID != 0
}

// Since copies the events after the one numbered seq to events, oldest first, and
// returns how many. If they do not begin with the next number, those between are lost.
func (t *Trace) Since(seq uint64, events []TraceEvent) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := uint64(len(t.ring))
	at := seq + 1
	if t.next > size {
		at = max(at, t.next-size)
	}
	if seq < t.view.Seq && t.view.Seq < at && len(events) > 0 {
		events[0] = t.view
		n = 1
	}
	for ; n < len(events) && at < t.next; n++ {
		events[n] = t.ring[at%size]
		at++
	}
	return n
}

// add takes an event, with the Lease locked.
func (t *Trace) add(e *TraceEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.Seq = t.next
	t.ring[t.next%uint64(len(t.ring))] = *e
	if e.Kind == TraceView {
		t.view = *e
	}
	t.next++
}
