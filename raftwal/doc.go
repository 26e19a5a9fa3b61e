// Package raftwal is a write-ahead log for raft nodes. It stores entries, hard state,
// snapshot position, configuration and the longest promise of the leader lease. A Log is
// a raft.Storage. Its files are segments. A write appends one batch to the last segment.
//
//	l, err := raftwal.Open(raftwal.Config{Dir: dir})
//	err = l.Save(rd.Entries, rd.HardState, rd.Snapshot) // before rd's messages are sent
//
//	err = l.SaveCommit(index)        // then make the state at index durable
//	err = l.SaveSnapshot(checkpoint) // at index
//	err = l.Compact(index)
//
// With raft's AsyncStorageWrites an Appender takes the place of Save.
//
// # What is promised
//
//   - When Save has returned nil, its arguments survive every crash, except for a commit
//     index that changed alone (see Save).
//   - After a crash, or an error of Save, all of its arguments are on disk or none. The
//     log has a prefix of the writes, in their order.
//   - The log that Open returns is durable, even if the process before ended between a
//     write and its sync.
//   - Open does not panic, whatever the files contain. Its memory is limited by their
//     length.
//
// # What the application must do
//
//   - Call SaveCommit before a state that is stored elsewhere becomes durable, and
//     before raft's ApplyConfChange. Its comment says what a crash could do otherwise.
//   - Start raft with Applied at most at the commit index of InitialState, and skip the
//     entries that raft then passes a second time.
//   - Compact well before the disk is full.
//   - Never start a member with an empty or an older directory under its old ID.
//
// # What goes wrong, and what then happens
//
//   - A crash interrupts a write. Open removes the incomplete batch: see Torn.
//   - The disk is full. The write returns a NoSpaceError, and a later one succeeds once
//     there is space. Part of each segment is reserved for the calls that free space:
//     see NoSpaceError.
//   - A sync or a change of file names fails, or a write fails for another reason. The
//     call and every later write return a FailedError. Reads continue. Exit, and open the
//     log again.
//   - Bytes of the log are damaged. Open, or Entries when it reads them, returns a
//     CorruptError with file and offset. Torn names the damage that Open cannot detect.
//
// # What is assumed
//
//   - When fdatasync returns, the data and a changed size are on stable storage. When fsync
//     of a directory returns, all earlier changes of its names are. Rename is atomic.
//   - A sector of 512 bytes is atomic: after a crash it has the old or the new bytes. A
//     write never changes another sector. If two batches share a sector, both versions
//     have the first batch.
//   - A read of synced bytes returns them, fails, or returns bytes with a wrong CRC.
//     CRC-32C misses one in 2³² random errors.
//   - flock works between processes. Over NFS it may not.
//
// It is not assumed that unsynced writes or names reach the disk in order, that a size is
// durable before the data, that zeros follow the last batch, or that a sync after a failed one
// repeats its work.
//
// Nothing is encrypted, and CRCs do not protect from an attacker with write access to the
// directory. The package needs flock and syncs of directories: a Unix system other than
// AIX and Solaris. On other systems Open fails.
//
// The layout of the files is documented in segment.go, batch.go and record.go.
package raftwal
