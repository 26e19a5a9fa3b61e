// Package leaderlease lets the leader of a Raft group serve linearizable reads
// from local state, without asking anybody, on an unmodified
// go.etcd.io/raft/v3.
//
// # What is promised
//
// A read that TryRead or Read admits is linearizable: it sees every write that
// was acknowledged, by any node, before the read was invoked.
//
// # What is assumed
//
//   - A1, rate: over one Config.Duration, the lease clocks of two nodes diverge
//     by at most Config.MaxClockSkew. Offsets between clocks do not matter: no
//     absolute time is ever compared across nodes.
//   - A2, counting: a leader's lease clock counts the time in which its process
//     or its machine was stopped. A voter's clock that stops only makes its
//     promise last longer.
//   - A3, raft's own: storage keeps what it acknowledged, one process runs per
//     ID, and peers are not Byzantine.
//   - A3', death notices: a process that ProcessDied reports never executes another
//     instruction. Groups that do not call ProcessDied need not assume this.
//
// Nothing is assumed of message delay, loss, duplication or order, of pauses,
// of ticks, or of wall clocks.
//
// # What happens when an assumption is false
//
// If a clock breaks A1 or A2, lease reads of that leader may be stale for as
// long as it believes in its lease; writes, and reads that took ReadIndex, are
// never affected. The assumptions are watched, not hoped for: a leader stops to
// count voters whose clocks it sees running outside the bound, and a clock that
// fails, goes backwards or reports a disruption costs the lease. A virtual
// machine that is paused by its hypervisor may break A2 unseen. One that is
// restored from a snapshot, or migrated, breaks A2 unless its clock tells (see
// package clock). If A3 is false, raft itself is not safe. Some supervisors start
// a second process of one ID: see "Identities" in docs/embedding-reference.md.
// If A3' is false, a second leader may be elected beside a valid lease.
//
// # Which packages are stable
//
// This package, clock, fence, fence/boltfence and metrics keep their exported names
// as semantic versioning asks. Status, PeerInfo and the like are types of package
// core, which users need not import. Packages core, leasetest and leasetrace may be
// used, and change without notice; so do the events of a Tracer.
//
// # How it works
//
// A leader stamps each heartbeat with the instant it was sent (a probe). A voter
// that receives one promises, by its own clock, to help elect nobody else for
// Duration, and says so in its heartbeat response (a grant). Once a majority has
// answered, the leader holds a lease until the send instant plus Duration, and
// serves reads until MaxClockSkew before that. Voters keep promises by dropping
// votes, pre-votes and TimeoutNow while bound; after a restart they are bound
// for the longest promise they may have made. The leader gives its lease up
// before it acts on a step-down, a transfer, or its own removal. A renewal costs
// no message, no disk write, and 19 bytes on a heartbeat and 31 on its answer,
// which raft sends anyway. The rules and the proof are in docs/design.md.
//
// # Embedding
//
// A Lease is a filter around the loop that drives raft, be it a RawNode or a
// Node, with or without AsyncStorageWrites:
//
//   - Ready sees each raft.Ready first, and replaces its messages;
//   - Incoming decides about each message from a peer before Step;
//   - Tick decides about each tick;
//   - ApplyConfState and Applied follow what the state machine does;
//   - ReadRequests yields what to pass to ReadIndex.
//
// NewRawNode makes a RawNode and its Lease in one call, of one raft.Config. StartNode and
// RestartNode make a raft.Node that does the filtering by itself; Wrap does so for one that is
// made elsewhere. NewRawNode, StartNode and RestartNode start raft with the commit index that
// the log proves, since a Storage may lose the one that it was given (RecoverCommit).
// LearnCommit lets a RawNode learn from an election what is committed. It reads Storage too.
//
// Read, TryRead, Do, Token and Watch are for everybody else. A leader that ends by itself says so with Resign, and is
// replaced at once; so is one whose process is known to have died, where ProcessDied is told.
//
// Two things must be right: Ready sees every raft.Ready before anything of it leaves;
// and Applied follows the state machine, never runs ahead of it. Nothing notices an
// embedding that calls Applied for what its state machine does not serve yet. One that
// shows some Readys to Ready and not others, or those of two nodes, is refused only when
// entries, terms or commit indexes do not fit. Other mistakes with Ready are harmless:
// sending from a copy of the Ready is right, since messages are stamped, and what is
// withheld is made void, where they are; a member on which Ready is never called, or
// comes too late, or whose messages were cloned before it, holds no lease unless it
// is the only voter, and no leader counts on its promises.
//
// Any other forgotten call may cost the lease, never correctness, and shows in
// Info: a node without Incoming grants nothing; without ApplyConfState leases
// are refused from the next configuration change on; without Applied reads wait;
// without Tick a node that would elect itself against its promise is held back
// in Ready. Config.ConfIndex is for those whose Storage has changes that raft hands
// out again.
//
// Advance, or a MsgStorageApplyResp, comes after ApplyConfChange and ApplyConfState for
// each change in a Ready. Raft's README allows the other order, by which raft counts by
// outdated configurations, and its log may fork. The Lease names the mistake, refuses
// leases, and holds a second change back until the first is applied.
//
// The raft.Config given to New is the very one the node runs with, and does not
// change. Its Storage is read by New, for a RawNode once more at the first Ready, and by
// LearnCommit, so the log is in it before New. What Ready shows of another Storage, ReadOnlyOption or
// AsyncStorageWrites is refused, with a MisuseError.
//
// # Callbacks
//
// Config.Send and the function given to StartRead run without a lock, from
// within the method that has ended the read, or in a goroutine of its own if that is
// the end of a context: they may call every method that does
// not block, but Ready. Config.Send says which methods call it. Config.Clock and Config.Notify
// are called with the lease locked, and must call none. The handler of Config.Logger runs in
// a goroutine of its own, and may block or call any method. The work of
// Do runs in its caller and may call anything; contexts that end with the lease
// run nothing of the embedder's under the lock. Config.Promises is loaded and saved by
// New, and saved without the lock while the node runs, in a goroutine of the Lease's.
//
// # After Close
//
// Reads, Token, Context and Do are refused with StatusClosed, TryRead and Info say
// so, and a Watch delivers that and ends. No heartbeat carries a probe, and
// forwarded reads are left to raft. All else works as before, for as long as raft
// runs: Ready, Incoming, Tick, WouldBlock and CanCampaign keep this node's promises, and
// make new ones; ApplyConfState, Applied, SetDiskStalled and Stats do no
// harm. Resign still hands back what was promised; ProcessDied voids nothing. ReadRequests delivers nothing
// new, and never closes. No method brings the lease back, and none blocks for longer
// than Ready says.
//
// # Mixed groups
//
// Nodes without the library count as voters that never grant, so lease reads are
// safe in any mix. A follower does not believe a leader that runs without it:
// its reads fail until a leader attests its answers. Nor does a ReadIndex
// read believe one that does not say that it made a round (ErrLeaderTooOld), as the
// versions before that mark. A node that ran the
// library must stay down for MaxPromise, or its saved promise if that is longer, before it
// runs without, as PromiseFile.Retire does.
//
// # Errors
//
// A *NoLeaseError from Read means that nothing was done: ask again, here after
// RetryAfter or at its Leader. A read whose context ends fails with an error that
// matches the context's and says what was waited for: Applied, a quorum round, or a
// call that the embedding has forgotten. It is returned at once when no leader is known and when leadership
// moves, so a caller that wants to ride out an election retries until its own
// deadline. Misuse and Close are final.
package leaderlease
