// Package leaderlease lets the leader of a Raft group serve linearizable reads from local state,
// without a round trip, on an unmodified go.etcd.io/raft/v3.
//
//	node, lease, err := leaderlease.NewRawNode(raftConfig, leaderlease.Config{TickInterval: tick})
//
//	// A read, in any goroutine:
//	if index, status := lease.TryRead(); status == leaderlease.StatusValid && applied >= index {
//		return stateMachine.Get(key)
//	}
//
// The examples of StartNode and of the package (RawNode) are complete programs, and run as tests.
//
// # What is promised
//
// A read that TryRead or Read admits is linearizable: it sees every write that any node acknowledged
// before the read was invoked.
//
// # What is assumed
//
//   - A1, rate: over one Config.Duration, the lease clocks of two nodes diverge by at most
//     Config.MaxClockSkew. Offsets between clocks do not matter: no absolute time is ever compared
//     across nodes.
//   - A2, counting: a leader's lease clock counts the time in which its process or its machine was
//     stopped. A voter's clock that stops only makes its promise last longer.
//   - A3, raft's own: storage keeps what it acknowledged, one process runs per ID, and peers are not
//     Byzantine.
//   - A3', death notices: a process that ProcessDied reports never executes another instruction.
//     Groups that do not call ProcessDied need not assume this.
//
// Nothing is assumed about message delay, loss, duplication or order, about pauses, ticks or wall
// clocks.
//
// # What happens when an assumption is false
//
// If a clock breaks A1 or A2, lease reads of that leader may be stale for as long as it believes in
// its lease. Writes, and reads that took ReadIndex, are never affected. The library watches the
// assumptions. A leader does not count voters with clocks outside the bound. A clock that fails,
// goes backwards or reports a disruption costs the lease. A virtual machine that its hypervisor
// pauses may break A2 unnoticed. One that is restored from a snapshot, or migrated, breaks A2 unless
// its clock reports it (package clock).
//
// If A3 is false, raft itself is not safe. Some supervisors start a second process of one ID: see
// "Identities" in docs/embedding-reference.md. If A3' is false, a second leader may be elected beside
// a valid lease.
//
// # Which packages are stable
//
// This package, with its aliases of types of package core, clock, fence, fence/boltfence and metrics keep
// their exported names as semantic versioning asks. Packages core, detector, leasepage, leasetest and
// leasetrace, and the events of a Tracer, change without notice.
//
// # How it works
//
// A leader stamps each heartbeat with the instant at which it was sent (a probe). A voter that
// receives one promises, by its own clock, to help elect no other node for Duration, and reports that
// in its heartbeat response (a grant). Once a majority has answered, the leader holds a lease until
// the send instant plus Duration. It serves reads until MaxClockSkew before that. A voter keeps its
// promise by dropping votes, pre-votes and TimeoutNow while it is bound. After a restart it is bound
// for the longest promise that it may have made. The leader gives its lease up before it acts on a
// step-down, a transfer, or its own removal.
//
// A renewal costs no message and no disk write, only about 20 bytes on a heartbeat and 30 on its response.
// The rules and the proof are in docs/design.md.
//
// # Embedding
//
// A Lease is a filter around the loop that drives raft, with a RawNode or a Node, with or without
// AsyncStorageWrites:
//
//   - Ready sees each raft.Ready first, and replaces its messages;
//   - Incoming decides about each message from a peer before Step;
//   - Tick decides about each tick;
//   - ApplyConfState and Applied follow the state machine;
//   - ReadRequests yields the requests to pass to ReadIndex.
//
// NewRawNode returns a RawNode and its Lease. StartNode and RestartNode return a raft.Node that
// filters by itself; Wrap does so for a Node that is made elsewhere. All but Wrap start raft with the
// commit index that the log proves (RecoverCommit). LearnCommit lets a RawNode learn from an election
// which entries are committed.
//
// Read, TryRead, Do, Token and Watch are for the rest of the program. A leader that shuts down calls
// Resign and sends the message that it returns. Once a leader's process has died, the others call
// ProcessDied and step the message that it returns. Either way a leader is elected without a wait for
// the promises.
//
// Safety rests on two rules that the Lease can check only in part: Ready sees every raft.Ready before
// anything of it leaves, and Applied never runs ahead of the state machine. A violation that it finds, such
// as Readys of two nodes, is a MisuseError in Info and in the errors of reads. To call Ready for some
// Readys only is not safe. These mistakes do no harm:
//
//   - Sending messages from a copy of the Ready. Messages are stamped and voided in place.
//   - Calling Ready never, always too late, or with clones of the messages. Such a member holds no lease
//     unless it is the only voter, and no leader counts on its promises.
//
// Any other forgotten call may cost the lease, never correctness, and shows in Info. Without Incoming
// a node grants nothing. Without ApplyConfState leases are refused after the next configuration
// change. Without Applied reads wait. Without Tick, Ready holds back a node that would elect itself
// against its promise. Config.ConfIndex is for a Storage with a ConfState newer than its snapshot.
//
// Advance, or a MsgStorageApplyResp, comes after ApplyConfChange and ApplyConfState for each change
// in a Ready. Raft's README allows the other order, but raft then counts by outdated configurations,
// and its log may fork. The Lease names the mistake, refuses leases, and holds a second change back
// until the first is applied.
//
// The raft.Config given to New is the one that the node runs with, and does not change. New reads
// its Storage, for a RawNode the first Ready reads it again, and LearnCommit reads it. So the log is
// in it before New. A Ready that does not fit its Storage, ReadOnlyOption or AsyncStorageWrites is a
// misuse.
//
// # Callbacks
//
//   - Config.Send and the function given to StartRead run without a lock, within the method that ends
//     the read, or in a goroutine of their own if a context ends it. They may call every method that
//     does not block, except Ready.
//   - Config.Clock and Config.Notify run with the lease locked. They must call no method.
//   - The handler of Config.Logger runs in a goroutine of its own. It may block and call any method.
//   - The function given to Do runs in its caller, and may call any method.
//   - New loads and saves Config.Promises. While the node runs, a goroutine of the Lease saves it
//     without the lock.
//
// # After Close
//
// Reads, Token, Context and Do are refused with StatusClosed. TryRead and Info report it, and a Watch
// delivers it and ends. Heartbeats carry no probe, and raft answers forwarded reads. All else goes on
// for as long as raft runs: Ready, Incoming, Tick, WouldBlock and CanCampaign keep this node's
// promises, and make new ones. ApplyConfState, Applied, SetDiskStalled and Stats do no harm. Resign
// still hands promises back; ProcessDied voids nothing. ReadRequests delivers nothing new, and never
// closes. No method brings the lease back, and none blocks for longer than Ready may.
//
// # Mixed groups
//
// A node without the library is a voter that never grants, so lease reads are safe in any mix. A
// follower does not believe a leader without the library: its reads fail until a leader attests its
// answers. A ReadIndex read does not believe a leader of a version that does not confirm its rounds
// (ErrLeaderTooOld). A node that ran the library must stay down for its restart hold (MaxPromise, or
// with Promises the saved duration) before it runs without it. PromiseFile.Retire waits for that.
//
// # Errors
//
// A *NoLeaseError from Read means that nothing was done. Try again, here after RetryAfter or at its
// Leader. Read returns it at once when no leader is known and when leadership moves. A caller that
// wants to wait for the next leader retries until its own deadline. Misuse and Close are final. The
// error of a read after the end of its context matches the context's error, and says whether it waited
// for Applied, for a quorum round, or for a call that the embedding has forgotten.
package leaderlease
