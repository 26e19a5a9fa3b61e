// Package leasetrace has the events that a lease traces (leaderlease.Config.Tracer), keeps
// them in memory (Trace) and in files, and judges them: is each recorded event a step that
// the rules allow?
//
// # What is judged
//
//   - Each process by itself, exactly: the real core.Guard and core.Lease are told what
//     they were told, and must decide what they have decided. So must what surrounds
//     them, as far as the trace shows it: no vote leaves a node that is bound, readers
//     are shown what has changed before the call that has changed it is over, a process
//     holds for what the one before has granted.
//   - Members against each other, by what was sent before it was received and nothing
//     else, since their clocks have nothing in common: a grant that is counted was
//     granted, for that probe, by that process; one process leads a term; and the claim
//     of docs/design.md: no view passes its check once somebody has won a later term.
//
// # What is not
//
// A missing event ends the judgement of its process, and what follows is not judged:
// [Verdict] says up to where. Nothing passes because it is missing: a message that
// nobody is seen to send is refused, unless its sender's trace lacks something there.
// Of the log the trace knows only what raft says: commit indexes and entries are not
// judged.
//
// This package changes without notice, as core and leasetest do.
package leasetrace
