// Package leasetrace defines the events of a lease (leaderlease.Config.Tracer), records
// them in memory ([Trace]) and in files ([Record]), and checks recorded events against the
// rules of the lease ([Judge]).
//
// # What is checked
//
//   - Each process alone: Judge replays the trace against the real core.Guard and
//     core.Lease, which must decide as recorded. Judge also checks the code around them:
//     no vote leaves a bound node, readers see a change before the call that made it
//     returns, and a process holds for what its predecessor has granted.
//   - Members against each other: their clocks are unrelated, so the only order is that a
//     message is sent before it is received. The voter has sent each grant that the leader
//     counts, for that probe and from that process. Only one process leads a term. No view
//     passes its check after another process has won a later term (docs/design.md).
//
// # What is not checked
//
// Judge stops at the first missing event of a process; [Verdict] says how far it came. A
// message without a matching send is an error, unless the sender's trace is incomplete
// there. Commit indexes and log entries are not checked.
//
// This package changes without notice, as core and leasetest do.
package leasetrace
