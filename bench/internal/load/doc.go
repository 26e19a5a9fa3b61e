// Package load puts a Target under a load of reads and writes, measures it and
// audits it.
//
// # What it promises
//
//   - Every operation is counted: as done, as failed, or, in an open loop that
//     fell behind, as not begun, which is a failure too. Failures do not enter
//     the latencies; they are shown beside them.
//   - A closed loop counts what ends within its duration. What began before, or
//     ends later, still has its latency among the others.
//   - A closed loop's latency is from the call to the return. An open loop's is
//     from the moment the operation was due, whether or not a client was free
//     then, so a target that stalls cannot hide it (coordinated omission).
//   - Every read is held against a version floor: the newest version of its key
//     that any operation, of any client, had shown before the read began. A read
//     below it is stale. It does not matter what the read calls itself.
//
// # What it assumes
//
// Versions of a key only grow, and an operation returns the version it has read
// or written. All clients of a Floor run in one process.
//
// Time is taken from package time alone, so that tests run in virtual time.
package load
