// Package concurrency serves etcd's Lock and Election services (v3lockpb, v3electionpb). Clients
// without a library for locks and elections, such as curl, use them.
//
// # Invariants
//
// Names, keys, replies and errors are etcd's. As in etcd, the services are thin layers over
// package concurrency of etcd's client (the library). Locks of the services exclude those of the library.
// The fencing token of a lock is the create revision of its key, that of an election is
// LeaderKey.rev.
//
//   - A client that passes a TTL lease keeps it alive. A call without one creates a lease of 60 s,
//     which is not kept alive and is revoked if the wait fails.
//   - A wait ends when its caller gives up; its key is then deleted. If the caller leaves just as
//     it gets the lock, the key may stay until its TTL lease ends. A wait also fails when this member
//     stops, or has known no leader for three election timeouts. Without a quorum the key stays
//     until its TTL lease ends.
//   - One TTL lease has one key per name. Two calls of Lock with the same lease share it: if one
//     gives up, the other fails at once if it still waits. Use one TTL lease per caller.
//   - If a caller's TTL lease ends while it waits, it gets an error at once. etcd reports it
//     only when the lock is free, and even elects such a candidate.
//   - Codes are etcd's, mostly Unknown. Errors after which a retry may succeed are Unavailable.
//
// # How requests reach the store
//
// The services are clients of this member, through an API of their own inside the process. So
// their requests are validated, limited and forwarded like all others. They do not depend on the
// listeners or on the listeners' limits, and metrics do not count them twice.
//
// # Import
//
// The messages are generated from etcd's files under etcd's names, which are part of the wire
// format. A process that also links etcd's own package of these messages panics at start, by
// protobuf's rule. So only package server and its listener import this one. See
// docs/adr/0009-generated-stubs.md.
package concurrency
