// Package raftwal keeps what a raft node has promised: its entries, hard state,
// snapshot position, configuration and longest promise, in a log on disk that a
// crash cannot take back. A Log is a raft.Storage.
//
//	l, err := raftwal.Open(raftwal.Config{Dir: dir})
//	err = l.Save(rd.Entries, rd.HardState, rd.Snapshot) // before rd's messages leave
//	err = l.SaveSnapshot(checkpoint)                    // when the state is durable elsewhere
//	err = l.Compact(index)                              // at most the checkpoint's index
//
// With raft's AsyncStorageWrites an Appender takes the place of the first call.
//
// # What it promises
//
//   - When Save has returned nil, everything it was given is there after any
//     crash, except for a commit index that came alone (see SaveCommit). Until
//     then it is there as a whole or not at all; it need not be gone if Save has
//     returned an error.
//   - Batches survive as a prefix of the order in which they were written.
//   - Open returns such a prefix, or a CorruptError that says where the log is
//     damaged. It never panics, and takes no more memory for a bad length than
//     the file is long.
//   - A failed sync, a write that failed for another reason than a full disk,
//     and a failed change of names are final: every later write returns a
//     FailedError and reads go on. What of it is there is known when Open has
//     read it and made it durable.
//   - What Open has found stays: the process before may have ended, or its sync
//     failed, between a write or a rename and the sync, and then the operating
//     system shows what the disk does not have. Open writes the last batch again
//     and syncs it and the names before anybody sees them. It checks what it
//     writes again as it did when it read it first.
//   - On a full disk a write returns a NoSpaceError. Nothing of it is visible,
//     and the same or another write may follow when there is room. The next
//     segment is found room for before anything is written, and where a file
//     system overwrites in place, that is the only place where room can run
//     out.
//   - A full disk can be freed: see Full disk.
//   - What would leave the commit index beyond the last entry is refused before
//     anything is written, since raft does not start from it.
//
// # Applied index
//
// A commit index that comes alone is put off, and raft does not start if more is
// applied than committed. An application that makes its state durable itself,
// with or without SaveSnapshot, therefore
//
//   - calls SaveCommit with the state's index before that becomes durable (Flush,
//     if no update may be waiting for an Appender), and SaveSnapshot after, and
//   - starts raft with Applied no larger than the commit index of InitialState,
//     and skips what raft then has it apply a second time.
//
// Either alone is enough for raft to start; the second also helps where a state
// has been copied from another node. SaveSnapshot, and a snapshot that Save
// installs, take the commit index along: on disk it is never below the
// snapshot's.
//
// # Configuration changes
//
// After a crash raft counts the members as of the commit index on disk. So who
// applies a change calls SaveCommit with its index before raft's ApplyConfChange,
// and before anybody is told that the change is made: whom it has removed may be
// gone for good by then, and a majority of the old members with them.
//
// # Full disk
//
// The end of each segment is kept for what is not entries or an installed
// snapshot: an eighth of it, but at least 1 KiB and at most 64 KiB. Of this
// reserve, hard states and promises may use a quarter. The rest is for Flush,
// SaveCommit, SaveSnapshot and Compact, and only where a Compact that far frees a
// segment; what frees none has to do with the quarter. Flush and SaveCommit may use
// another eighth, and SaveSnapshot leaves room for Compact. So neither elections nor
// checkpoints that come again and again can use up what leads to a free segment:
//
//	err = l.SaveCommit(index)         // and make the state at index durable
//	err = l.SaveSnapshot(checkpoint)  // as new as possible
//	err = l.Compact(checkpoint.index) // as far as it reaches
//
// This takes a log of at least two segments of the size in Config, since the
// last one never goes and the next one must fit where the first was, a file
// system that overwrites in place, and a snapshot that, with its data and
// configuration, fits into a third of the reserve. The share of SaveCommit
// is a hundred calls in segments of 512 KiB or more, and one in segments of 8 KiB or
// less: who checkpoints, or fails to, more often than that without a Compact may
// find no room for it, and goes on if raft starts with the smaller index
// (see Applied index). Elections may find no room either. So compact well
// before the disk is full.
//
// # Torn tail or damage
//
// A batch is written only when the one before it is durable, be it that the same
// process has synced it or that Open has. So after a crash at most the last batch is
// incomplete; it is cut, durably, and reported by Recovered. Everything else that does
// not fit is damage, and Open refuses: what was lost may have been promised to others.
// To tell the two apart, Open looks for a later batch behind the first one that is not
// valid. Each begins with a mark that only a batch at that place of that segment has,
// so it is found even if the lengths that lead there are gone.
//
// Nothing on the disk tells an incomplete last batch from one that was
// acknowledged and damaged afterwards: damage within the very last batch, or
// from within a batch through to the end of the log, passes for a torn tail. A
// segment whose file has become shorter never does, nor does damage to what a
// segment began with, since that was synced before the file had its name. That
// the last segments are missing as a whole, as in an old backup, is not seen
// either. If all are missing, the marker tells, and Open refuses; an empty
// directory is a new log, whatever was there before. Never give a member one
// under its old ID.
//
// # Files
//
// A directory holds segments, 0000000000000001.wal and so on without a gap,
// spares, which are to become segments and mean nothing, the lock, and the
// marker: an empty file, begun, which comes when the first segment and its name
// are durable, and stays. A log of an earlier version gets it from the first
// Open. Integers are little-endian, CRCs are CRC-32C. A segment is its header
// and then batches to some offset; what is behind them is zero or left from an
// earlier use of the file.
//
//	0    8  magic "raftwal\x1a"
//	8    4  version, 1
//	12   4  zero
//	16   8  id, which is in the file's name, too
//	24   8  size of the file
//	32   8  nonce, random for each use of the file
//	40   8  number of the first batch
//	48   8  last index before this segment, plus one
//	56   8  end of what was durable before the file had its name
//	64   8  end of the segment before this one
//	72   4  CRC at that end
//	76      zeros
//	508  4  CRC of bytes 0 to 507
//
// A batch is records, of which the first says how long it is. A record is
//
//	0    4  length n of the payload
//	4    1  type
//	5    1  flags
//	6    2  zero
//	8    n  payload
//	        zeros, so that the next field ends at a multiple of 8
//	     4  CRC of all that, xor 0x9e3779b1 times the four bytes in front
//
// Those four bytes are the CRC of the record before it, or of the header, which
// covers the nonce. So a record is valid only behind exactly what it was
// written behind: neither what a recycled file held, nor the rest of an
// earlier attempt at the same place, can complete a batch. The types are
//
//	1  batch       0 8 mark: splitmix64(nonce + offset·0x9e3779b97f4a7c15)
//	               8 8 number, one more than the batch before
//	               16 4 length of the other records, 20 4 how many they are
//	2  entry       0 8 term, 8 8 index, 16 data
//	               flags: 1 term, 2 index, 4 type, 8 data is present; type<<4
//	3  hard state  0 8 term, 8 8 vote, 16 8 commit
//	4  install     0 8 term, 8 8 index, 16 4 length c of the ConfState, 20 4 zero,
//	               24 c ConfState (protobuf), data
//	               flags: 1 data is present
//	5  checkpoint  like install
//	6  base        0 8 term, 8 8 index
//	7  promise     0 8 nanoseconds
//
// Records take effect in order. An entry ends the log: entries from its index
// on are void. An install replaces the log, a checkpoint only what Snapshot
// returns, and a base says that everything up to it is compacted.
//
// # Why a crash is harmless
//
// Conflicting entries. New entries and what they replace are one record each in
// the log's order, so nothing is overwritten: the replacement is durable in the
// same moment as its first entry, with the batch. There is no state in which a
// truncation was lost and later entries were not.
//
// A new segment begins with a batch that repeats all but the entries: base, hard
// state, promise and checkpoint. It is written, with the batch that did not fit
// any more, into a spare, synced, and only then renamed; the directory is synced
// before Save returns. So a segment with a bad header is damaged, and where the
// segment before it ends its header says.
//
// Compaction. The base is durable before the first segment goes. Segments go
// from the oldest on, each durably before the next, so no gap can appear.
// Entries whose segment is gone must be at or below a base that a remaining
// segment holds, or Open refuses. The directory is synced before a file is used
// again, or its old name could come back with new contents. A segment that a
// reader is using is removed instead. What an installed snapshot has replaced
// goes in the same way, when the next segment begins.
//
// A failed write on a full disk leaves parts of a batch at the end. The next
// batch goes on top; if a crash mixes the two, the chained CRC does not hold,
// and neither had been acknowledged.
//
// A commit index that changes alone is written with the next batch. If it were
// written without a sync, two batches could be on their way to the disk at once,
// and the second be there without the first.
//
// # What is assumed of the disk
//
//   - fdatasync returns when the data, and a changed size, are on stable
//     storage; the drive does not lie about its cache.
//   - A sector of 512 bytes is written as a whole: after a crash it holds the
//     old or the new bytes. A sector that two batches share is written twice;
//     the part they had in common is then the same in both.
//   - Writing one sector never changes another that is not being written.
//   - fsync of a directory makes all earlier changes of its names durable, and
//     rename is atomic.
//   - Bytes that were synced are read back as they were written, or the read
//     fails, or the CRC tells; CRC-32C misses one in 2³² random errors.
//   - After a failed fsync nothing is assumed of what was written since the
//     last one that succeeded.
//   - flock holds between processes, which over NFS it may not.
//
// What is not assumed: that unsynced writes reach the disk in order, that names
// do, that a file's size is durable before its data, that zeros follow the end.
//
// Nothing is encrypted, and CRCs do not protect from someone who writes to the
// directory. The package needs flock and directory syncs, hence a Unix system
// other than AIX and Solaris; elsewhere Open refuses and says what is missing.
package raftwal
