// Package connlimit keeps a few clients without a certificate from taking a member
// down, or from locking out peers and other clients. It has two parts.
//
// Port limits the connections to one port. A connection is pending until its owner
// calls Authenticated: after a member's hello, or when a client has begun with HTTP/2,
// or has sent an HTTP/1 request or the first bytes of the Redis protocol.
//
//   - At most MaxPending connections are pending. A new one evicts another: of the
//     host with the most pending connections, the most silent one.
//     This limit rejects no connection.
//   - At most MaxOpen connections are open, so that some file descriptors remain for
//     the log and the store. Above it a new connection evicts a pending one, or is
//     rejected.
//
// Port has no time limits. Its owner sets deadlines; a silent connection of the Redis
// protocol in plain text has none, and stays until it is evicted.
//
// H2 limits how much memory and processor time one HTTP/2 connection can make gRPC use. It parses frame headers in
// both directions, and changes no byte.
//
//   - While a client sends short frames, Read returns at most 4 KiB and then yields the processor. gRPC closes no
//     connection that resets many streams (CVE-2023-44487), and 20 readers that never block starve the raft loop.
//   - A client is not read while many of its answers wait to be written. It is read
//     slowly while many of its short requests are in progress.
//   - All connections share the maxStreams of NewH2. A stream is
//     rejected if the number on its connection (twice that for a watch or a wait) plus the number
//     on all would exceed it.
//   - A connection is closed if it sends messages in too many small pieces.
//
// docs/adr/0030-connlimit.md has the measurements.
package connlimit
