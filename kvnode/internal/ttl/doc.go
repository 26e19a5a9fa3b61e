// Package ttl counts the time of TTL leases on the member that leads, and has
// those revoked whose time is over. What TTL leases there are, and which keys
// belong to them, is in the replicated state (package store), which has no clock.
//
// # What it promises
//
// A TTL lease that was granted, or whose keep-alive was answered, is not revoked
// for want of keep-alives before its TTL has passed since then by the clock of
// whoever leads, whatever stands still meanwhile. It may live longer:
//
//   - A new leader gives every TTL lease its full TTL again, or what was left when
//     a checkpoint of it was made last (Config.Checkpoint), since a keep-alive is
//     not in the log.
//   - Only served time counts: time in which this member could have answered a
//     keep-alive. It is taken at ticks, and a tick counts if the leader lease
//     holds now and did at the tick before, and if it does not come late. Where the
//     lease is not held, a quorum round in its place says so. While
//     the process is stopped, the machine sleeps, the disk hangs or the quorum is
//     away, no TTL lease grows older.
//   - After such an interruption nothing is revoked for Grace of served time:
//     keep-alives that wait in sockets, or whose clients went to look elsewhere,
//     come first. Interruptions up to MaxGap that follow each other share one
//     grace, or nothing would ever end.
//
// # Why a leader that wakes revokes nothing it must not
//
// A leader may be deposed without knowing. Before each revocation the engine asks
// whether the leader lease holds in the term that it began with, and the proposal
// carries that term: the store drops it if it is replicated in any other one. So
// even a proposal that lay in a queue while the leader was stopped, and is then
// handed to the next leader, has no effect.
//
// An ID may be granted again. So a revocation names its grant, and the store drops it
// if the ID is another's by then, whichever way it came there: late, twice, or after
// one of a client. (Unless members of older versions are there, see ADR 12: then it
// says the ID alone. Right before it is proposed the engine looks whether the grant
// is still there, but what is in the log by then it cannot know. And no checkpoints are
// written, which might shorten the life of another grant.)
// What the engine counts is what the store has: it reads the store under the lock
// under which it hears of changes, and a grant replaces what was counted under its
// ID.
//
// # Why a keep-alive that is answered can be believed
//
// It is answered under a valid leader lease, or after a quorum round, in the term
// of the reign, once the store has applied everything committed by then; that is
// asked again after each wait, and what a later leader has granted is not renewed. A
// TTL lease whose revocation was proposed is not renewed any more in that reign: its
// keep-alives wait until it is gone. A checkpoint that might shorten its life on
// the next leader is taken back in the log before the answer, be it of this reign, or
// of one before: then the store says so. And a new reign adopts only once the store
// has applied what those before have committed, or it would go by checkpoints that
// they have taken back.
package ttl
