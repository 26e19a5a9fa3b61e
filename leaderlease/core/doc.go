// Package core has the rules of the leader lease as arithmetic: no clock, goroutine, lock, logger or IO. Time
// comes in as an argument, decisions go out as return values. Package leaderlease drives it. The rule
// numbers (V1–V9, L1–L8) are those of docs/design.md.
//
// # What it promises
//
// If Check(now) of a View of term t returns Valid, no other node had won an election in a term later than t
// when the clock showed now, provided that
//
//   - the node asks its Lease before it probes, counts every grant through it, and tells it of every
//     step-down, transfer and configuration change before acting on it (L1–L8);
//   - every voter asks its Guard before it lets a vote, a pre-vote or a TimeoutNow in or out, and uses
//     AloneQuorum and DelayVotes for its own votes (V1–V9);
//   - over one promise two nodes' clocks drift apart by at most MaxClockSkew, and the leader's clock
//     counts the time in which it was stopped.
//
// # Why it holds
//
// A lease ends at E = sent + Duration for the newest probe that a quorum has answered. Each of those
// voters made its promise after that probe was sent. So by its own clock the promise ends Duration or
// more after the send, hence not before E − MaxClockSkew on the leader's clock. An election needs a
// quorum of the same configuration, or of one that overlaps it. The two quorums share a voter. Its
// promise keeps it from helping before E − MaxClockSkew (Guard.Bound). The leader's own vote is no
// exception: the leader steps down, which voids the view, before its vote can leave.
//
// Zero values refuse: a zero View and a zero Lease are not valid. A Guard is made by NewGuard.
//
// Nothing here is safe for concurrent use, except that a View is immutable.
package core
