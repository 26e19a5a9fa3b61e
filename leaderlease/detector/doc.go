// Package detector is a failure detector for the leader of a Raft group. It decides when a member
// campaigns because its leader seems to be dead. The raft loop of the embedder calls it.
//
// The package is pure: events and the time go in, decisions come out. It has no clock, lock,
// goroutine or IO. Safety never depends on it: see "Safety" below.
//
// # What starts an election
//
// After a crash, a group mostly waits for raft's election timeout, and not for the promise, which
// may be much shorter. A suspicion shortens that wait:
//
//   - Gone reports that the other end has closed a peer's last connection (io.EOF,
//     io.ErrUnexpectedEOF under TLS, ECONNRESET). Do not report a timeout, or a connection that this
//     process has closed. Proxies and middleboxes close connections too, so this proves nothing.
//   - ProcessDied reports that the leader's process has died and that the promise to it is void
//     (Lease.ProcessDied). This is a proof, so the first member in order campaigns at once.
//   - A member that has restarted and hears no leader suspects its former leader. So after a crash of
//     all members the group does not wait for an election timeout.
//   - With Config.Observe, a silence that is unusually long for this leader is a suspicion. See below.
//
// While the leader is suspected, the raft loop calls Poll every few milliseconds. Once the promise
// to the leader has ended, and three heartbeats are missing, Poll makes raft forget the leader
// (ForgetLeader), so that raft votes at once. Then the members campaign one after another. The
// order is that of their IDs, and each has a time slot.
//
// A heartbeat or an append ends the suspicion, unless it comes within a heartbeat of Gone or of a
// pre-vote: it may have been sent before. After ProcessDied only a leader of a later term ends it.
// Without any suspicion the members campaign after an election timeout of silence, also in slots, which is sooner than
// raft's random timeouts.
//
// A member that votes in a new term leaves that election alone for an election timeout, since the disks
// may need longer than a slot. A candidate gives up its own election only if another member has
// requested votes since, or if it was forced (ProcessDied).
//
// # Adaptive failure detection
//
// A leader that is stopped, cut off or without power closes no connection. With Config.Observe its
// silence is a suspicion as soon as all of these hold:
//
//   - It is twice as long as the longest silence of the last ten minutes that ended within an
//     election timeout. Silences of former leaders count.
//   - It is at least five heartbeats and 250 ms. Each false suspicion doubles this minimum: the
//     first for an hour, and each later one for twice as long as the one before.
//   - The promise to the leader has ended.
//
// Only time in which this member ran counts, as its calls of Tick, Poll and Heard show. After a
// pause of its own that is longer than a tick and a heartbeat, the silence starts again at zero. A
// leader is observed for Config.Observe first, and again after an absence. Recording begins in the
// middle of that time. Before its end, and where the limit would reach an election timeout, silence
// is no suspicion. A suspicion was false if the suspect is heard, leader or not, within an election
// timeout of its last sign of life.
//
// # Safety
//
// The lease's guard does not depend on the leader that raft believes in (rule V7 of
// docs/design.md). A promise is kept whatever raft forgets, and Poll does nothing while a promise
// binds the member. A false suspicion at one follower changes no term: PreVote and CheckQuorum refuse
// it. One at a majority costs an election. All of that majority must have missed the leader until the
// promise ended and for three heartbeats and, unless connections were closed, for longer than the
// pauses that they have recorded.
package detector
