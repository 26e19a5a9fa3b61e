// Package ttl counts the time of TTL leases on the leader, and proposes to revoke expired ones. The
// replicated state (package store) has the leases and their keys, but no clock.
//
// # Guarantees
//
// A TTL lease is not revoked before its TTL has passed since its grant or its last answered
// keep-alive, by the leader's clock. It may live longer:
//
//   - A new leader gives each TTL lease its full TTL, or the remaining time of its last lease
//     checkpoint (Config.Checkpoint), because keep-alives are not in the log.
//   - Only served time counts: time in which this member could have answered a keep-alive. Each tick
//     adds the time since the tick before, if the leader lease was valid at both ticks and the tick is not
//     late. If there is no valid leader lease, a quorum round at the tick takes its place. So no TTL lease
//     expires while the process is stopped, the machine sleeps, the disk hangs or the quorum is lost.
//   - After an interruption nothing is revoked for Grace of served time, so that keep-alives that wait
//     in sockets, or that clients sent elsewhere, arrive first. Repeated interruptions of up to MaxGap
//     share one grace period, or no lease would ever expire.
//
// # Why a deposed leader revokes nothing
//
// A leader may be deposed without knowing it. Before each revocation the engine checks that the leader lease is valid
// in its term (or makes a quorum round), and the proposal carries that term: the store drops it in any other term. So
// a proposal that waited while the leader was stopped, and then reached the next leader, has no effect.
//
// An ID may be granted again. So a revocation names the generation of its lease
// (store.TTLLease.Generation), and the store drops it if the ID has another generation by then. While
// the cluster has members of older versions, a revocation names only the ID (ADR 12). The engine
// then checks, right before it proposes, that the lease still exists. It resets lease
// checkpoints but writes none, since one could shorten the life of a later generation.
//
// The engine counts time for exactly the leases in the store. It reads the store under the lock under which Changed
// runs, and a grant replaces the entry that the engine had under its ID.
//
// # Why an answered keep-alive holds
//
// A keep-alive is answered under a valid leader lease, or after a quorum round, in the current term, after the store
// has applied everything that was committed by then. The engine confirms this again after each wait, so it does not
// renew a lease that a later leader has granted under the same ID.
//
// After its revocation was proposed, a TTL lease cannot be renewed in that term. Its keep-alives
// wait until it is gone.
//
// If a lease checkpoint in the log could shorten the lease's life under the next leader, it is
// reset in the log before the answer, whether this leader or an earlier one wrote it. A new leader
// adopts the leases only after the store has applied everything that earlier leaders committed, so
// it does not use a checkpoint that they have reset.
package ttl
