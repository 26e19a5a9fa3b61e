// Package detector decides when a member of a Raft group takes its leader for dead, and
// campaigns: a failure detector. It is pure: events and the time go in, decisions come out.
// It has no clock, lock, goroutine or IO.
//
// What keeps a group without a leader after a crash is silence, an election timeout of it,
// and not the promise, which may be much shorter. A process that dies ends its connections,
// and its peers hear of that within milliseconds. So:
//
//   - Gone tells of a peer whose last connection the other end has ended (io.EOF,
//     io.ErrUnexpectedEOF under TLS, ECONNRESET; not what a timeout or this process has
//     ended). It is a hint and never a proof: proxies and middleboxes end connections, too.
//   - While the leader is suspected, Poll is called every few milliseconds. As soon as the
//     promise to it has ended, and three heartbeats are missing, raft is told to forget it
//     (ForgetLeader), and then votes at once; and the members take turns to campaign.
//   - Obituary tells that the leader's process is known to be dead, and the promise to it void
//     (Lease.Obituary). It is a proof, so the first to have its turn campaigns at once.
//   - A heartbeat or an append that comes later than what was under way ends the suspicion.
//   - Who is asked for a vote of a new term leaves that election an election timeout, and who
//     stands gives its own up for another only where it has a rival: disks may take longer
//     than turns.
//
// A member that has restarted, and hears no leader, does the same as after a hint: once its restart
// hold is over, it campaigns in its turn. So a group whose members have all been killed need not
// wait for an election timeout. A leader that lives is heard before the hold ends, and where it
// is not, it keeps its followers by CheckQuorum: they grant no pre-vote.
//
// Without a hint it is silence that decides, and members take turns after it as well, which
// is sooner than raft's own random timeouts.
//
// # Learnt silence
//
// Nobody hears of a leader that is stopped, cut off or without power. With Config.Learn its
// silence is a hint, too, as soon as it is
//
//   - twice as long as the longest of the last ten minutes that has ended within an election
//     timeout, be it of a leader before,
//   - and five heartbeats and 250 ms at least, which each false alarm doubles, the first for an
//     hour and each further one for twice as long as the one before,
//   - and the promise to the leader has ended.
//
// Only time counts in which this member ran, as its calls of Tick, Poll and Heard show: after a
// pause of its own of more than a tick and a heartbeat silence begins anew. A leader is watched
// for Learn before any of this, anew if it was away, and teaches in the second half of that.
// Until then, and where it would come to an election timeout, silence is no hint. An alarm is
// false if its leader is heard, as a leader or not, within an election timeout of its last sign
// of life.
//
// # What it may break
//
// Nothing about safety depends on any of it. The lease's guard does not look at whom raft
// takes for its leader (rule V7 of docs/design.md): a promise is kept whatever is forgotten,
// and Poll decides nothing while one binds the member. PreVote and CheckQuorum refuse whoever
// is alone with its suspicion: a false alarm at one follower changes no term. One at a
// majority, of a leader that none of them hears of for as long as the promise lasts, for three
// heartbeats at least, and for longer than they know leaders to stall, costs an election.
package detector
