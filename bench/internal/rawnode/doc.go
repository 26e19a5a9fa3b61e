// Package rawnode measures reads under lease against the other ways in which a raft
// leader can serve linearizable reads: on three bare RawNodes in one process, each
// with its raft loop in a goroutine, over loopback TCP. It also measures the check
// alone, which those reads begin with.
//
// What the arms have in common is everything but the question "may I answer?":
// raft's configuration, transport, storage (in memory), state machine (one
// register) and the loop itself. No arm has a disk or a real network, so
// differences are the largest that one can see; a round trip between machines
// makes every arm but the lease slower.
//
// bench/README.md says what was measured and how to repeat it.
package rawnode
