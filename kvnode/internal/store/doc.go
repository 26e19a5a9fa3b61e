// Package store is kvnode's state machine: what every member computes from the
// log, kept in memory for readers and in checkpoints for restarts.
//
// # What it promises
//
// Members that applied the same entries hold the same state: Apply uses no
// clock, no randomness and no map order, and HashKV lets anybody compare.
//
// A read is as of one revision, over any number of keys. Get takes no lock and
// allocates nothing, and no write ever holds it up; a long Range holds up Apply
// for one chunk of the index at most. Once Applied has reached an index, every
// read that starts afterwards sees what the entries up to it did.
//
// Checkpoint makes a state durable, in commits of which each is a whole checkpoint of an
// earlier index (cut.go). Whatever is newer is lost with the process, so the log must
// still hold it.
//
// # How it is kept
//
// A hash map leads from a key to its chain: the newest version, which points to
// the one before, and so on back to the last compaction. Apply prepends
// versions and then publishes the revision they belong to. A reader loads the
// published revision first and skips versions above it, so it sees all of a
// transaction or nothing. An ordered index of the chains serves ranges, and counts by
// place; what was made and deleted since takes a count back to an older revision. A version
// is a small record; the message of etcd's API is made when it is answered.
//
// A compaction takes effect at once, for readers and for hashes, by publishing
// the compacted revision. The versions it makes unreachable are freed later, a
// few at a time. A reader that finds nothing, or has read many keys, looks at
// the compacted revision last: if it has passed the reader's revision, what was
// read may have holes, and it reads again or reports the compaction.
//
// The history lists the versions in the order of writes, back to the last
// compaction, for those who watch and have to catch up (package watch).
//
// TTL leases are part of the state: which there are, and which keys name them. They
// are records of a checkpoint like versions, and end by an entry only: the store
// knows no time.
//
// All of it hangs off one pointer, which Restore replaces.
//
// # What it relies on
//
// One goroutine applies. What readers and Events are handed is shared and must
// not be changed. The backend's commit is atomic and, when it returns, durable.
package store
