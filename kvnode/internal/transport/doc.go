// Package transport carries raft messages between the members of a cluster.
//
// # What it promises
//
//   - Heartbeats, votes and their answers never wait behind log entries or
//     snapshots: each member dials each peer for what it sends, over one
//     connection for control messages, one for bulk messages, and one for each
//     snapshot.
//   - Send never blocks and memory is bounded: a peer that does not read fills
//     its queues, and what finds a queue full is lost, counted, and reported
//     with Handler.Unreachable.
//   - Messages of one stream to one peer arrive in the order in which they were
//     sent, each at most once. Raft tolerates every other loss and reordering.
//   - Nothing reaches Handler.Receive that Validate refuses, so no message of a
//     single peer can make raft panic (see also ValidateAgainst).
//   - A snapshot reaches its end at the receiver only as it left the sender:
//     checksums run along and a SHA-256 closes it.
//
// # What it relies on
//
// Peers are authenticated by Config.Authenticate, over connections that
// Config.Listener and Config.Dial secure with TLS. Without it the handshake tells
// members and clusters apart; it keeps out the misconfigured, not the malicious.
//
// # On the wire
//
// A connection begins with a packet (packet.go) from the dialler, a Hello, and
// one from the acceptor, its own Hello or a refusal. Frames follow (frame.go):
// one raft message each, or none, which asks for a sign of life. A snapshot's
// connection carries one frame, then the state in chunks (chunks.go).
package transport
