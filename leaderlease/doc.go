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
// The examples of StartNode and of the package (RawNode) run as tests.
//
// # What is promised
//
// A read that TryRead, Read, ReadIndex or StartRead admits is linearizable: it sees every write that any
// node acknowledged before the read was invoked.
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
// If a clock breaks A1 or A2, reads under a leader's lease, also those of followers, may be stale for
// as long as that leader believes in it. Writes, and reads by a quorum round, are never affected. The library
// watches the clocks: a leader does not count voters with clocks outside the bound, and a clock that
// fails, goes backwards or reports a disruption costs the lease. It does not notice every pause,
// snapshot or migration of a virtual machine (package clock).
//
// If A3 is false, raft itself is not safe (see "Identities" in docs/embedding-reference.md). If A3' is
// false, a second leader may be elected beside a valid lease.
//
// # How it works
//
// A leader stamps each heartbeat with the instant at which it was sent (a probe). A voter that
// receives one promises, by its own clock, to help elect no other node for Duration, and reports that
// in its heartbeat response (a grant). Once a majority has answered, the leader holds a lease until
// the send instant plus Duration. It serves reads until MaxClockSkew before that, and gives the lease
// up before it acts on a step-down, a transfer, or its own removal. A renewal costs no message and no
// disk write, only about 20 bytes on a heartbeat and 30 on its response.
//
// A voter is bound until its promise ends: it drops votes, pre-votes and TimeoutNow. After a restart or
// a step of its clock it is bound for the longest promise that it may have made: the restart hold. The proof, and
// the rules that comments name (V1, L1 and so on), are in docs/design.md.
//
// # Embedding
//
// A Lease is a filter around the loop that drives raft. With StartNode, RestartNode or Wrap the raft.Node makes
// all calls but two: Applied, and ApplyConfState for a rejected change. With NewRawNode or New the loop makes them:
//
//   - Ready sees each raft.Ready first, before anything of it leaves, and replaces its messages;
//   - Incoming decides about each message from a peer, and RaiseCommit sees it, before Step;
//   - Tick decides about each tick;
//   - ApplyConfState reports each configuration change, before Advance or a MsgStorageApplyResp;
//   - Applied follows the state machine, and never runs ahead of it;
//   - ReadRequests yields the requests to pass to ReadIndex.
//
// Safety rests on the rules for Ready, Applied, and ApplyConfState before Advance, which the Lease can
// check only in part. A violation that it finds is a MisuseError in Info and in the errors of reads.
// Another forgotten call may cost the lease, reads or an election, but no read is stale.
// docs/embedding-reference.md lists the mistakes and their effects.
//
// The log must be in the Storage of raft.Config before New, and raft must run with that raft.Config.
//
// # Errors
//
// A *NoLeaseError from Read means that the read was not served: try again, here after RetryAfter or at
// its Leader. If the context of a read ends first, the error matches the context's error.
//
// # Callbacks
//
// Config.Clock, Config.NotifyRead and Config.Tracer may run with the lease locked: they must call no method.
// Config.Send and the function given to StartRead may call every method that does not block, except
// Ready. The handler of Config.Logger and the function given to Do may call all.
//
// # After Close
//
// No method brings the lease back, and only Ready and Close may block. Reads, Token, Context and Do are
// refused with StatusClosed. TryRead and Info report that status, and a new Watch delivers it and ends.
// Heartbeats carry no probe, and raft answers the ReadIndex requests of followers. Keep calling Ready,
// Incoming and Tick while raft runs: this node still makes and keeps promises. Resign still hands
// promises back, and ProcessDied voids nothing. The other methods do no harm.
//
// # Mixed groups
//
// A node without a Lease never grants. Lease reads beside it are safe if it starts raft from
// RecoverCommit(Storage), without AsyncStorageWrites (V9), and calls ApplyConfChange before Advance. If
// it leads, reads of followers fail. A node that ran the library must be down for its restart hold
// before it runs without (PromiseFile.Retire).
//
// # Which packages are stable
//
// This package (with its aliases of core's types) and the packages clock, fence, fence/boltfence and
// metrics keep their exported names as semantic versioning asks. Packages core, detector, leasepage, leasetest
// and leasetrace, and the events of a Tracer, change without notice.
package leaderlease
