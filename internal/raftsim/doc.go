// Package raftsim looks for violations by go.etcd.io/raft/v3 and its embedders when writes are
// asynchronous and a crash loses some of them. It runs bare RawNodes, without leases, in one
// goroutine with one event heap, so that a seed repeats the same run.
//
// # What is modelled
//
//   - Messages leave as raft documents for AsyncStorageWrites: those of a Ready first,
//     and the responses of its MsgStorageAppend when that is durable.
//   - A disk writes in order, slowly, and stalls. A crash keeps what is durable
//     and, by chance, the first few of the writes that are under way. The kind of a
//     disk says what else a crash loses: entries and hard state are in files of their
//     own, or in one log, as etcd's, or a write is atomic, as in raftwal. A crash can
//     come between entries and hard state, unless the write is atomic. A HardState that
//     changes only the commit index is not synced: in a file of its own it is lost, in
//     a log it becomes durable with the next write.
//   - The network delays, loses, doubles and reorders messages, and delivers old
//     ones once more, also those that a former incarnation of the sender sent.
//   - State machines apply slowly, and raft is told later still. Checkpoints are
//     durable some time after they were taken, and then compact the log.
//   - Configurations change, one member at a time and jointly, with learners. An
//     operator switches removed members off once a majority of the new voters
//     reports that it has applied the removal.
//
// # What is judged
//
//   - led twice: one incarnation of one member leads a term
//   - diverged: logs that are known to be committed are equal, entries of one
//     index and term are one entry, and a new leader has all that was committed
//   - stale read: ReadIndex answers at least what was known to be committed
//     anywhere when the request was made
//   - not durable: a granted vote and an acknowledged append are durable when
//     they leave; no term, vote or commit index goes back within an incarnation
//   - lost: every acknowledged entry is committed at the end
//   - panic: raft does not panic
//   - no leader: once everything is healed, a leader is elected and commits
//     within a bounded virtual time
//
// # What an embedder must add
//
// With AsyncStorageWrites as raft documents it, the simulator finds a violation within a few
// seeds. An embedder must follow the [Rules] as well: with all of them the simulator finds no
// violation, and without any one of them it does. docs/raft-durability.md describes the cases
// message by message.
package raftsim
