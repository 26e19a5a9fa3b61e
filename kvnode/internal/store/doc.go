// Package store is kvnode's state machine. Each member computes it from the raft log. It is kept in
// memory for readers, and in checkpoints for restarts.
//
// # Guarantees
//
// Members that applied the same entries hold the same state: Apply uses no clock, no randomness and
// no map order. Package hashcheck compares members.
//
// A read sees one revision, over any number of keys. Get takes no lock and allocates nothing. A
// long Range delays Apply by at most one chunk of the index at a time. Once Applied has reached an
// index, every read that starts later sees the effect of all entries up to it.
//
// SaveCheckpoint makes the state durable. It may take several commits, and each commit leaves the
// complete state as of one index. Later entries are lost with the process, so the log must still
// hold them.
//
// # Structure
//
// A hash table maps a key to its chain: its versions, newest first, back to the last compaction.
// Apply prepends versions and then publishes their revision. A reader loads
// the published revision first and skips newer versions, so it sees all of a transaction or
// nothing. An ordered index of the chains serves ranges and counts.
//
// A compaction takes effect at once, for readers and for hashes, when the compacted revision is
// published. A goroutine later frees the versions that became unreachable, a few at a time. A
// reader that finds nothing, or has read many keys, checks the compacted revision last. If it is
// above the reader's revision, the result may have holes, so the reader retries or reports the
// compaction.
//
// The history lists the versions in the order of writes, back to the last compaction. Package watch
// reads it for watchers that are behind.
//
// TTL leases and their keys are part of the state. Only an entry ends a lease: the store has no
// clock. Package ttl counts the time on the leader.
//
// All of this hangs off one pointer, which Restore replaces.
//
// # Requirements
//
// One goroutine calls Apply, ApplyConf and Restore. Values that readers and callbacks get are
// shared and must not be changed. A commit of the backend is atomic, and durable when it returns.
package store
