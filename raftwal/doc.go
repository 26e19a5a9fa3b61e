// Package raftwal is a write-ahead log for raft nodes. It stores entries, hard
// state, snapshot position, configuration and the longest promise on disk,
// durably across crashes. A Log is a raft.Storage.
//
//	l, err := raftwal.Open(raftwal.Config{Dir: dir})
//	err = l.Save(rd.Entries, rd.HardState, rd.Snapshot) // before rd's messages are sent
//	err = l.SaveSnapshot(checkpoint)                    // when the state is durable elsewhere
//	err = l.Compact(index)                              // at most the checkpoint's index
//
// With raft's AsyncStorageWrites an Appender takes the place of the first call.
//
// # What it promises
//
//   - When Save has returned nil, all of its arguments survive every crash, except
//     for a commit index that changed alone (see SaveCommit). If the process
//     crashes before that, or Save returns an error, they are on disk as a whole or
//     not at all.
//   - After a crash the log has a prefix of the batches, in the order in which they
//     were written.
//   - Open returns such a prefix, or a CorruptError with the place of the damage. It
//     never panics. Its memory is limited by the length of the file, even if a
//     length in it is wrong.
//   - A failed sync, a failed write that was not due to a full disk, and a failed
//     change of file names are final. Every later write returns a FailedError, and
//     reads continue. The next Open decides how much of the failed write is durable.
//   - The log that Open has returned is durable. The process before may have died, or
//     its sync may have failed, between a write and the sync: then the operating
//     system shows bytes that the disk does not have. So Open checks the last batch
//     again, writes it again, and syncs it and the file names.
//   - On a full disk a write returns a NoSpaceError and changes nothing that readers
//     see. A later write succeeds once there is space. Space for the next segment is
//     allocated before anything is written to it. On a file system that overwrites
//     in place, no other write can run out of space.
//   - Space on a full disk can be freed: see Full disk.
//   - A write that would leave the commit index beyond the last entry is refused,
//     because raft does not start from such a log.
//
// # Applied index
//
// Save does not write a commit index that changed alone, and raft does not start if
// the applied index is above the commit index. So an application that makes its own
// state durable, with or without SaveSnapshot,
//
//   - calls SaveCommit with the state's index before the state becomes durable (or
//     Flush, if no update waits for an Appender), and SaveSnapshot afterwards, and
//   - starts raft with Applied at most at the commit index of InitialState, and skips
//     the entries that raft then passes a second time.
//
// Each of the two alone is enough for raft to start. The second also works for a state
// that was copied from another node. SaveSnapshot, and a snapshot that Save installs,
// raise the commit index on disk to the snapshot's.
//
// # Configuration changes
//
// After a crash raft uses the configuration as of the commit index on disk. So call
// SaveCommit with the index of a change before raft's ApplyConfChange, and before any
// client learns of the change. A removed member may be gone for good by then. Without
// SaveCommit, the old configuration could have lost its majority.
//
// # Full disk
//
// Entries and installed snapshots do not use the end of a segment, the reserve: an
// eighth of the segment, but at least 1 KiB and at most 64 KiB. Hard states and
// promises may use a quarter of it. The rest is for Flush, SaveCommit, SaveSnapshot and
// Compact, as far as they lead to a free segment: Flush and SaveCommit may use another
// eighth, and SaveSnapshot leaves room for Compact. Calls that free no segment count
// with the hard states. So neither elections nor repeated checkpoints can use up the
// room for these three calls, which free a segment:
//
//	err = l.SaveCommit(index)         // then make the state at index durable
//	err = l.SaveSnapshot(checkpoint)  // as new as possible
//	err = l.Compact(checkpoint.index)
//
// That needs a log of at least two segments of the size in Config, since the last one
// stays and the next one must fit into the space of the first; a file system that
// overwrites in place; and a snapshot that, with its data and configuration, fits into
// a third of the reserve. The share of SaveCommit is enough for a hundred calls in
// segments of 512 KiB or more, and for one in segments of 8 KiB or less. An application
// that makes more checkpoints without a Compact may find no room for SaveCommit. It can
// continue if raft starts with the smaller index (see Applied index). Elections may find
// no room either. So compact well before the disk is full.
//
// # Torn tail or damage
//
// A batch is written only after the one before is durable. So after a crash at most the
// last batch is incomplete. Open removes it durably, and Recovered reports it. Any other
// invalid bytes are damage, and Open refuses the log: the node may have acknowledged
// what was lost. To tell the two apart, Open searches for a batch behind the first
// invalid one. Each batch begins with a mark that depends on its segment and offset, so
// it is found even if the lengths before it are damaged.
//
// On disk, an incomplete last batch looks like a last batch that was acknowledged and
// damaged later. So damage within the last batch, or from within a batch to the end of
// the log, is taken for a torn tail. A shorter file never is, nor is damage to the
// beginning of a segment, because both were synced before the file got its name. Open
// does not see that the last segments are missing as a whole, as in an old backup. If
// all are missing, the file "begun" is still there, and Open refuses. An empty directory
// is a new log. Never start a member with an empty directory under its old ID.
//
// # Files
//
// A directory has segments (0000000000000001.wal and so on, without gaps), spares (files
// for later segments, without meaning), the lock, and the empty file "begun", which is
// made after the first segment is durable. A segment is a header and then batches. Each
// batch is a sequence of records. Behind the last batch are zeros or bytes of an earlier
// use of the file. The layouts are documented at headerSize (segment.go), batchPayload
// (batch.go) and recordHeader (record.go).
//
// Each record has a CRC that covers the CRC before it, and the first one that of the
// header, with a random nonce. So a record is valid only behind exactly the bytes behind
// which it was written: neither the old content of a recycled file, nor the rest of an
// earlier attempt at the same place, can complete a batch.
//
// Records take effect in order. An entry replaces all entries from its index on. An
// installed snapshot replaces the log, a checkpoint only the result of Snapshot. A base
// record means that all entries up to its index are compacted.
//
// # Why a crash is harmless
//
// Conflicting entries. New entries and the end of the entries that they replace are the
// same records. So no crash can lose a truncation and keep later entries.
//
// A new segment begins with a batch that repeats base, hard state, promise and
// checkpoint. It is written into a spare, together with the batch that did not fit into
// the segment before, synced, and then renamed. The directory is synced before Save
// returns. So a segment with an invalid header is damaged. The header also has the end
// of the segment before.
//
// Compaction. The base record is durable before the first segment is removed. Segments
// are removed from the oldest on, each durably before the next, so no gap appears. Open
// refuses a log without the segment of an entry above the base. The directory is synced
// before a file is used again, or its old name could come back with new content. A
// segment that a reader uses is deleted and not used again. Segments that an installed
// snapshot replaced are removed in the same way, when the next segment begins.
//
// A failed write on a full disk leaves parts of a batch at the end. The next batch
// overwrites them. If a crash mixes the two, the chained CRC is wrong, and neither batch
// was acknowledged.
//
// A commit index that changed alone is written with the next batch. If it were written
// without a sync, two batches could be unsynced at once, and the disk could have the
// second without the first.
//
// # What is assumed of the disk
//
//   - fdatasync returns when the data and a changed size are on stable storage. The
//     drive does not lie about its cache.
//   - A sector of 512 bytes is atomic: after a crash it has the old or the new bytes. A
//     sector that two batches share is written twice; their common part is the same in
//     both writes.
//   - Writing one sector never changes another one.
//   - fsync of a directory makes all earlier changes of its names durable, and rename is
//     atomic.
//   - A read of synced bytes returns them, fails, or returns bytes with a wrong CRC.
//     CRC-32C misses one in 2³² random errors.
//   - After a failed fsync the writes since the last successful one may be lost.
//   - flock works between processes. Over NFS it may not.
//
// It is not assumed that unsynced writes or names reach the disk in order, that a file's
// size is durable before its data, or that zeros follow the end.
//
// Nothing is encrypted, and CRCs do not protect from an attacker with write access to the
// directory. The package needs flock and directory syncs, so a Unix system other than AIX
// and Solaris. On other systems Open fails with the name of the missing function.
package raftwal
