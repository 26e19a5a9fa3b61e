package main

import (
	"slices"
)

// wal are the bugs of a log on disk: those of docs/reliability.md, Planted bugs,
// and the rules of raftwal's own format.
var wal = slices.Concat(walRules, walFull, walOpen, walSpares)

// walRules are about what is written, and found again.
var walRules = []Mutant{
	{
		Rule: "storage", Name: "send before fsync",
		File: "raftwal/appender.go",
		Old:  "		if err == nil {\n			err = a.save(updates)\n		}\n		for i := range group {\n			group[i].done(err)\n		}\n",
		New:  "		for i := range group {\n			group[i].done(err)\n		}\n		if err == nil {\n			err = a.save(updates)\n		}\n",
		Pkg:  "./raftwal", Test: "TestAppenderSharesSyncs",
	},
	{
		Rule: "storage", Name: "no sync after a write",
		File: "raftwal/save.go",
		Old:  "if err := w.seg.file.Sync(); err != nil {",
		New:  "if err := error(nil); err != nil {",
		Pkg:  "./raftwal", Test: "TestCrashAtEveryOperation",
	},
	{
		Rule: "storage", Name: "HardState not synced",
		File: "raftwal/save.go",
		Old:  "if d.hard.term != old.term || d.hard.vote != old.vote || (!b.empty() && d.hard != old) {",
		New:  "if !b.empty() && d.hard != old {",
		Pkg:  "./raftwal", Test: "TestCrashAtEveryOperation",
	},
	{
		Rule: "storage", Name: "vote alone is put off like a commit index",
		File: "raftwal/save.go",
		Old:  "if d.hard.term != old.term || d.hard.vote != old.vote || (!b.empty() && d.hard != old) {",
		New:  "if d.hard.term != old.term || (!b.empty() && d.hard != old) {",
		Pkg:  "./raftwal", Test: "TestVoteAloneIsDurable",
	},
	{
		Rule: "storage", Name: "fsync error ignored",
		File: "raftwal/save.go",
		Old:  "	if err := w.seg.file.Sync(); err != nil {\n		return l.fail(fmt.Errorf(\"sync %s: %w\", w.seg.name, err))\n	}\n",
		New:  "	_ = w.seg.file.Sync()\n",
		Pkg:  "./raftwal", Test: "TestFailureIsFinal",
	},
	{
		Rule: "storage", Name: "write goes on after a failed fsync",
		File: "raftwal/log.go",
		Old:  "	l.w.failed = &FailedError{Cause: err}\n	return l.w.failed\n",
		New:  "	return &FailedError{Cause: err}\n",
		Pkg:  "./raftwal", Test: "TestFailureIsFinal",
	},
	{
		Rule: "storage", Name: "no directory fsync",
		File: "raftwal/rotate.go",
		Old:  "if err := l.dir.Sync(); err != nil {",
		New:  "if err := error(nil); err != nil {",
		Pkg:  "./raftwal", Test: "TestCrashAtEveryOperation",
	},
	{
		Rule: "storage", Name: "segment named before it is synced",
		File: "raftwal/rotate.go",
		Old:  "	if err := spare.file.Sync(); err != nil {\n",
		New:  "	if err := error(nil); err != nil {\n",
		Pkg:  "./raftwal", Test: "TestCrashAtEveryOperation",
	},
	{
		Rule: "storage", Name: "tail repair cuts at damage in the middle",
		File: "raftwal/recover.go",
		Old:  "	if found {\n",
		New:  "	if false && found {\n",
		Pkg:  "./raftwal", Test: "TestFlipOfEveryBit",
	},
	{
		Rule: "storage", Name: "damage in what was synced under a spare's name passes for a torn tail",
		File: "raftwal/recover.go",
		Old:  "	if t.end < int64(s.sealed) {\n",
		New:  "	if false && t.end < int64(s.sealed) {\n",
		Pkg:  "./raftwal", Test: "TestDamageToTheFirstBatchesIsNoTornTail",
	},
	{
		Rule: "storage", Name: "torn tail in a segment that is not the last",
		File: "raftwal/recover.go",
		Old:  "	case t.reason != \"\":\n",
		New:  "	case false:\n",
		More: []Edit{{
			File: "raftwal/recover.go",
			Old:  "	case t.chain != next.prevChain || t.number != next.firstBatch:\n",
			New:  "	case false:\n",
		}},
		Pkg: "./raftwal", Test: "TestFlipOfEveryBit",
	},
	{
		Rule: "storage", Name: "Open does not settle",
		File: "raftwal/log.go",
		Old:  "if err := l.settle(); err != nil {",
		New:  "if err := error(nil); err != nil {",
		Pkg:  "./raftwal", Test: "TestOpenMakesDurableWhatItReads",
	},
	{
		Rule: "storage", Name: "Open does not sync names that it has read",
		File: "raftwal/recover.go",
		Old:  "	if err := l.syncDir(); err != nil {\n",
		New:  "	if err := error(nil); err != nil {\n",
		Pkg:  "./raftwal", Test: "TestSpareOfAnEarlierProcessIsNoSegment",
	},
	{
		Rule: "storage", Name: "commit index falls below the snapshot",
		File: "raftwal/save.go",
		Old:  "			d.hard.commit = max(d.hard.commit, commit)\n",
		New:  "			_ = commit\n",
		More: []Edit{{
			File: "raftwal/view.go",
			Old:  "		h.commit = max(h.commit, snap)\n",
			New:  "		_ = snap\n",
		}},
		Pkg: "./raftwal", Test: "TestCommitIndexNeverFallsBelowTheSnapshot",
	},
	{
		Rule: "storage", Name: "torn tail not cut",
		File: "raftwal/recover.go",
		Old:  "	if torn == nil {\n",
		New:  "	if true || torn == nil {\n",
		Pkg:  "./raftwal", Test: "TestTornTailIsCutOnce",
	},
	{
		Rule: "storage", Name: "CRC not chained",
		File: "raftwal/record.go",
		Old:  "	return crc32.Checksum(b, castagnoli) ^ chain*chainFactor\n",
		New:  "	return crc32.Checksum(b, castagnoli)\n",
		Pkg:  "./raftwal", Test: "TestTwoAttemptsAtOnePlaceNeverMix",
	},
	{
		Rule: "storage", Name: "recycled segment keeps its nonce",
		File: "raftwal/rotate.go",
		Old:  "nonce: l.cfg.Nonce(),",
		New:  "nonce: 7,",
		Pkg:  "./raftwal", Test: "TestRecycledSegmentForgets",
	},
	{
		Rule: "storage", Name: "a commit index that was put off passes for durable",
		File: "raftwal/save.go",
		Old:  "if index <= l.w.hard.commit {",
		New:  "if index <= l.mu.view.hard.commit {",
		Pkg:  "./raftwal", Test: "^TestSaveCommit$",
	},
	{
		Rule: "storage", Name: "SaveCommit writes what updates have brought, not what it was told",
		File: "raftwal/save.go",
		Old:  "	hard.commit = max(hard.commit, index)\n",
		New:  "",
		Pkg:  "./raftwal", Test: "^TestSaveCommit",
	},
	{
		Rule: "storage", Name: "SaveCommit takes a newer commit index back",
		File: "raftwal/save.go",
		Old:  "hard.commit = max(hard.commit, index)",
		New:  "hard.commit = index",
		Pkg:  "./raftwal", Test: "^TestSaveCommit$",
	},
	{
		Rule: "storage", Name: "SaveCommit goes beyond the last entry",
		File: "raftwal/save.go",
		Old:  "last := v.last(); index > last {",
		New:  "last := v.last(); index > last+1 {",
		Pkg:  "./raftwal", Test: "^TestSaveCommit$",
	},
	{
		Rule: "storage", Name: "log compacted before the checkpoint is durable",
		File: "raftwal/compact.go",
		Old:  "	if covered := v.snap.GetMetadata().GetIndex(); index > covered {\n",
		New:  "	if covered := v.last(); index > covered {\n",
		Pkg:  "./raftwal", Test: "TestCompactStopsAtTheSnapshot",
	},
	{
		Rule: "storage", Name: "segments removed before the record of compaction is durable",
		File: "raftwal/compact.go",
		Old:  "	if err := l.write(b); err != nil {\n		return err\n	}\n	l.mu.Lock()\n	v.compact(base)\n	l.mu.Unlock()\n	return l.retire(l.dead())\n",
		New:  "	l.mu.Lock()\n	v.compact(base)\n	l.mu.Unlock()\n	if err := l.retire(l.dead()); err != nil {\n		return err\n	}\n	return l.write(b)\n",
		Pkg:  "./raftwal", Test: "TestCrashAtEveryOperation",
	},
	{
		Rule: "storage", Name: "segment recycled under a reader",
		File: "raftwal/compact.go",
		Old:  "	if !idle || !ok ||",
		New:  "	if !ok ||",
		Pkg:  "./raftwal", Test: "TestCompactionWhileReading",
	},
	{
		Rule: "storage", Name: "truncation of a conflicting tail not durable",
		File: "raftwal/view.go",
		Old:  "		v.slots.truncate(n)\n	}\n	v.slots.push(",
		New:  "		n += uint64(v.slots.head)\n		v.slots.chunks[n/chunkLen][n%chunkLen] = slot{place: at, term: id.term}\n		return\n	}\n	v.slots.push(",
		Pkg:  "./raftwal", Test: "TestStorageAppend",
	},
	{
		Rule: "storage", Name: "conflicting tail cut in a batch of its own, before the entries",
		File: "raftwal/save.go",
		Old:  "	if !l.w.batch.empty() {\n",
		New:  "	if n := len(l.w.offsets); n > 1 && updates[0].Entries[0].GetIndex() <= l.mu.view.last() {\n		u := updates[0]\n		u.Entries = u.Entries[:1]\n		if _, err := l.encode([]Update{u}); err != nil {\n			return err\n		}\n		if err := l.write(&l.w.batch); err != nil {\n			return err\n		}\n		if _, err := l.encode(updates); err != nil {\n			return err\n		}\n	}\n	if !l.w.batch.empty() {\n",
		Pkg:  "./raftwal", Test: "TestCrashAtEveryOperation",
	},
	{
		Rule: "storage", Name: "readers see a batch whose write has failed",
		File: "raftwal/save.go",
		Old:  "		if err := l.write(&l.w.batch); err != nil {\n			return err\n		}\n		l.w.hard = d.hard\n	}\n	l.publish(updates, d)\n	return nil\n",
		New:  "		err = l.write(&l.w.batch)\n		l.w.hard = d.hard\n	}\n	l.publish(updates, d)\n	return err\n",
		Pkg:  "./raftwal", Test: "TestFullDisk",
	},
	{
		Rule: "storage", Name: "promise not in the head of a segment",
		File: "raftwal/rotate.go",
		Old:  "	if v.promise != 0 {\n",
		New:  "	if false {\n",
		Pkg:  "./raftwal", Test: "TestTheRestSurvivesItsSegment",
	},
	{
		Rule: "storage", Name: "length of a file not checked",
		File: "raftwal/segment.go",
		Old:  "	case h.size != uint64(size):\n",
		New:  "	case false:\n",
		Pkg:  "./raftwal", Test: "TestTruncationAtEveryByte",
	},
	{
		Rule: "storage", Name: "no lock against a second process",
		File: "raftwal/fs/lock_flock.go",
		Old:  "return flock(f, syscall.LOCK_EX)",
		New:  "return flock(f, syscall.LOCK_SH)",
		Pkg:  "./raftwal", Test: "TestLogOnARealDisk",
	},
	{
		Rule: "metrics", Name: "the time of a sync is that of its write, too", Pkg: walPkg, Test: "^TestStatsTellWriteFromSync$",
		File: "raftwal/report.go",
		Old:  "c.flushes.Note(now.Sub(written))",
		New:  "c.flushes.Note(now.Sub(begun))",
	},
	{
		Rule: "datadir", Name: "a member starts while its directory is read", Pkg: nodePkg, Test: "^TestADirectoryThatIsReadIsNotRunWith$",
		File: "raftwal/fs/os.go",
		Old:  "f.Close())\n\t}\n\treturn f, nil\n}\n\n// noLock", New: "f.Close())\n\t}\n\treturn noLock{}, f.Close()\n}\n\n// noLock",
	},
	{
		Rule: "datadir", Name: "a directory is read by one at a time", Pkg: nodePkg, Test: "^TestADirectoryThatIsReadIsNotRunWith$",
		File: "raftwal/fs/os.go",
		Old:  "shareLock(f)", New: "lockFile(f)",
	},
	{
		Rule: "storage", Name: "a disk that forgets what members have acknowledged", Pkg: nodePkg, Test: "^TestSeeds$",
		File: "raftwal/save.go",
		Old:  "err := w.seg.file.Sync(); err != nil {", New: "err := error(nil); err != nil {",
	},
}

const (
	reserveFile = "raftwal/rotate.go"
	walPkg      = "./raftwal"
	freedTest   = "TestFullDiskIsFreedByCompaction"
	usedUpTest  = "TestNothingUsesTheReserveUp"
)

// walFull take a full disk the way to compaction.
var walFull = []Mutant{
	{
		Rule: "storage", Name: "entries use what compaction needs on a full disk",
		File: reserveFile,
		Old:  "	case useBulk:\n		return all\n",
		New:  "	case useBulk:\n		return 0\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "votes use what compaction needs on a full disk",
		File: reserveFile,
		Old:  "		return all * 6 / 8\n",
		New:  "		return 0\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "votes use what Flush needs on a full disk",
		File: reserveFile,
		Old:  "		return all * 6 / 8\n",
		New:  "		return all * 5 / 8\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "Flush has no share of the reserve",
		File: "raftwal/save.go",
		Old:  "	b.use = u\n",
		New:  "	_ = u\n",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "Flush uses what a checkpoint needs on a full disk",
		File: reserveFile,
		Old:  "		return all * 5 / 8\n",
		New:  "		return 0\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "Flush that helps to free nothing uses its share",
		File: "raftwal/save.go",
		Old:  "l.useFor(useFlush, l.mu.view.hard.commit)",
		New:  "useFlush",
		Pkg:  walPkg, Test: freedTest,
	},
	{
		Rule: "storage", Name: "checkpoint uses what compaction needs on a full disk",
		File: reserveFile,
		Old:  "		return compactSize\n",
		New:  "		return 0\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "checkpoints that free nothing use the reserve",
		File: "raftwal/compact.go",
		Old:  "	b.use = l.useFor(useSnapshot, snap.GetMetadata().GetIndex())\n",
		New:  "	b.use = useSnapshot\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "compaction that frees nothing uses the reserve",
		File: "raftwal/compact.go",
		Old:  "	b.use = l.useFor(useCompact, index)\n",
		New:  "	b.use = useCompact\n",
		Pkg:  walPkg, Test: usedUpTest,
	},
	{
		Rule: "storage", Name: "what an installed snapshot has replaced is no room",
		File: "raftwal/rotate.go",
		Old:  "	if w.seg != nil {\n		// Segments",
		New:  "	if false {\n		// Segments",
		Pkg:  walPkg, Test: "TestInstalledSnapshotFreesAFullDisk",
	},
	{
		Rule: "storage", Name: "full disk in Open has no type",
		File: "raftwal/recover.go",
		Old:  "	if fs.IsNoSpace(err) {\n		return &NoSpaceError{Cause: err}\n",
		New:  "	if fs.IsNoSpace(err) {\n		return err\n",
		Pkg:  walPkg, Test: "TestOpenOnAFullDiskSaysSo",
	},
	{
		Rule: "storage", Name: "no room for the marker keeps the log shut",
		File: "raftwal/segment.go",
		Old:  "	if fs.IsNoSpace(err) {\n",
		New:  "	if false && fs.IsNoSpace(err) {\n",
		Pkg:  walPkg, Test: "TestNoRoomForTheMarker",
	},
}

// walOpen are about what Open makes, checks and refuses, and about what Save
// must refuse so that raft starts again.
var walOpen = []Mutant{
	{
		Rule: "storage", Name: "commit index beyond the log is written",
		File: "raftwal/save.go",
		Old:  "	if d.hard.commit > d.last {\n",
		New:  "	if false {\n",
		Pkg:  walPkg, Test: "TestCommitIndexBeyondTheLogIsRefused",
	},
	{
		Rule: "storage", Name: "batch at the commit index is refused",
		File: "raftwal/save.go",
		Old:  "	if d.hard.commit > d.last {\n",
		New:  "	if d.hard.commit >= d.last {\n",
		Pkg:  walPkg, Test: "TestCommitIndexBeyondTheLogIsRefused",
	},
	{
		Rule: "storage", Name: "last batch written again without a check",
		File: "raftwal/recover.go",
		Old:  "reason != \"\" {\n			return s.corrupt(",
		New:  "reason == \"-\" {\n			return s.corrupt(",
		Pkg:  walPkg, Test: "TestSettleChecksWhatItWritesAgain",
	},
	{
		Rule: "storage", Name: "only the head of the last batch checked",
		File: "raftwal/recover.go",
		Old:  "	for b = b[batchHeader:]; len(b) > 0; {\n",
		New:  "	chain = t.chain\n	for b = b[len(b):]; len(b) > 0; {\n",
		Pkg:  walPkg, Test: "TestSettleChecksWhatItWritesAgain",
	},
	{
		Rule: "storage", Name: "log without its segments begins anew",
		File: "raftwal/recover.go",
		Old:  "	case len(l.segments) == 0 && l.marked:\n",
		New:  "	case len(l.segments) == 0 && l.marked && false:\n",
		Pkg:  walPkg, Test: "TestLogWithoutItsSegmentsIsRefused",
	},
	{
		Rule: "storage", Name: "marker before the first segment is durable",
		File: "raftwal/log.go",
		Old:  "	if rec == nil {\n		err = l.begin()\n",
		New:  "	if rec == nil {\n		err = errors.Join(l.putMarker(files), l.begin())\n		files.marked = true\n",
		Pkg:  walPkg, Test: "TestMarkerNeverPrecedesTheFirstSegment",
	},
	{
		Rule: "storage", Name: "marker before what Open has found is settled",
		File: "raftwal/log.go",
		Old:  "		if err := l.settle(); err != nil {\n",
		New:  "		if err := l.putMarker(files); err != nil {\n			return err\n		}\n		files.marked = true\n		if err := l.settle(); err != nil {\n",
		More: []Edit{{
			File: "raftwal/segment.go",
			Old:  "	if err := l.syncDir(); err != nil {\n",
			New:  "	if err := error(nil); err != nil {\n",
		}},
		Pkg: walPkg, Test: "TestMarkerNeverPrecedesTheFirstSegment",
	},
	{
		Rule: "storage", Name: "marker is not durable",
		File: "raftwal/segment.go",
		Old:  "	if err := l.syncDir(); err != nil {\n",
		New:  "	if err := error(nil); err != nil {\n",
		Pkg:  walPkg, Test: "TestLogWithoutMarkerOpens",
	},
	{
		Rule: "storage", Name: "log of an earlier version never gets a marker",
		File: "raftwal/log.go",
		Old:  "	if err := l.putMarker(files); err != nil {\n",
		New:  "	if rec != nil {\n		files.marked = true\n	}\n	if err := l.putMarker(files); err != nil {\n",
		Pkg:  walPkg, Test: "TestLogWithoutMarkerOpens",
	},
	{
		Rule: "storage", Name: "file of more than 32 bits passes for a segment",
		File: "raftwal/segment.go",
		Old:  "	case h.size > math.MaxUint32:\n",
		New:  "	case h.size > math.MaxUint32 && false:\n",
		Pkg:  walPkg, Test: "TestSegmentOfMoreThan32BitsIsRefused",
	},
	{
		Rule: "storage", Name: "segment that is not retired stays open",
		File: "raftwal/compact.go",
		Old:  "errors.Join(err, s.release())",
		New:  "errors.Join(err)",
		Pkg:  walPkg, Test: "TestFailedCompactionClosesItsFile",
	},
	{
		Rule: "storage", Name: "new directory whose name cannot be synced",
		File: "raftwal/fs/os.go",
		Old:  "	if !missing && (",
		New:  "	if (",
		Pkg:  "./raftwal/fs", Test: "TestMakeDirToleratesAnotherUsersParent",
	},
	{
		Rule: "storage", Name: "directory in one that cannot be synced is refused",
		File: "raftwal/fs/os_unix.go",
		Old:  "	return errors.Is(err, syscall.EINVAL) ||",
		New:  "	return false && errors.Is(err, syscall.EINVAL) ||",
		Pkg:  "./raftwal/fs", Test: "TestMakeDirToleratesAnotherUsersParent",
	},
}

const (
	fillingFile = "raftwal/spares.go"
	sparesFile  = "raftwal/spares.go"
)

// walSpares are about the time and the goroutine that makes a spare.
var walSpares = []Mutant{
	{
		Rule: "storage", Name: "a spare is made all at once", Pkg: walPkg, Test: "^TestSpareGrowsWithTheSegmentBeforeIt$",
		File: fillingFile, Old: "min(n.made+s.piece(), s.size)", New: "s.size",
	},
	{
		Rule: "storage", Name: "a spare is made although a segment has been freed", Pkg: walPkg, Test: "^TestNoSpareIsMadeBesideAFreedSegment$",
		File: fillingFile, Old: " || !s.lacks()", New: "",
	},
	{
		Rule: "storage", Name: "the background tries again with each piece", Pkg: walPkg, Test: "^TestSpareThatCannotBeMade$",
		File: fillingFile, Old: "\t\tn.failed.Store(true)\n", New: "",
	},
	{
		Rule: "storage", Name: "the background never tries again", Pkg: walPkg, Test: "^TestSpareThatCannotBeMade$",
		File: sparesFile, Old: "\ts.next.failed.Store(false)\n", New: "",
	},
	{
		Rule: "storage", Name: "a spare that is half made is made anew", Pkg: walPkg, Test: "^TestSegmentIsNeededBeforeItsSpareIsMade$",
		File: fillingFile, Old: "\tif size != s.size {", New: "\tif true {",
	},
	{
		Rule: "storage", Name: "a spare that is half made stays", Pkg: walPkg, Test: "^TestSpareThatIsHalfMadeGoes$",
		File: sparesFile, Old: "\t\t_ = s.discard(p) // the next Open removes it, too\n", New: "\t\t_ = p\n",
	},
	{
		Rule: "storage", Name: "pieces of a spare are not synced", Pkg: walPkg, Test: "^TestSpareGrowsWithTheSegmentBeforeIt$",
		File: fillingFile, Old: "if err := n.spare.file.Sync(); err != nil {", New: "if err := error(nil); err != nil {",
	},
	{
		Rule: "storage", Name: "a spare whose last piece is being made is made twice", Pkg: walPkg, Test: "^TestSegmentIsNeededWhileItsLastPieceIsMade$",
		File: fillingFile, Old: "s.takeReady(size); ready != nil || err != nil {", New: "s.takeReady(0); ready != nil || err != nil {",
	},
	{
		Rule: "storage", Name: "Close makes all of a spare", Pkg: walPkg, Test: "^TestCloseWaitsForOnePiece$",
		File: sparesFile, Old: "\ts.next.goal.Store(0) // further pieces would be discarded\n", New: "",
	},
}
