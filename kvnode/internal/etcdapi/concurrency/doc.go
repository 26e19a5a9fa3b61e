// Package concurrency serves etcd's Lock and Election services (v3lockpb,
// v3electionpb), with which clients that have no library for it lock and elect:
// curl, or whatever speaks gRPC.
//
// # What is promised
//
// Names, keys, replies and errors are etcd's: as there, both are thin layers over
// package concurrency of etcd's client, and a lock taken here and one taken by
// that package exclude each other. The token of a lock is the create revision of
// its key, that of an election LeaderKey.rev.
//
//   - A client that gives a TTL lease keeps it alive. One that gives none gets one of 60 s, which
//     nobody keeps alive and which is revoked if the wait fails.
//   - A wait lasts as long as its caller does, and ends with it: the key with which
//     it stood in line is deleted. It also ends with an error when this member
//     stops, or has known no leader for three election timeouts. Where there is no
//     quorum to delete a key it stays until its TTL lease ends.
//   - One TTL lease has one place in line for a name. Two calls of Lock with the
//     same one share it: what one gives up, the other loses, and is told so at once if it
//     still waits. Give each caller a TTL lease of its own.
//   - A caller whose TTL lease ends while it waits gets an error at once. etcd tells it when
//     the lock is free, and tells a candidate that it was elected.
//   - Codes are etcd's, which answers Unknown to most of what is refused, save that
//     what may be tried again is Unavailable.
//
// # How it is reached
//
// The services are clients of this member, through an API of their own inside the
// process: their requests are checked, bounded and forwarded like everybody's, and
// end neither with the listeners nor when those are full. They are not counted
// twice in metrics.
//
// # Who may import it
//
// The messages are generated from etcd's files, under etcd's names, which are on
// the wire. A process that links etcd's own package of the same messages as well
// ends when it starts, by protobuf's rule, so only package server imports this
// one. See docs/adr/0009-generated-stubs.md.
package concurrency
