package main

import (
	"slices"
)

const walPkg = "./raftwal"

// wal are the bugs of a log on disk: those of docs/reliability.md, Planted bugs,
// and the rules of raftwal's own format.
var wal = slices.Concat(walRules, walFull, walOpen, walSpares)

// inLog is a bug in a file of package raftwal, which a test of that package catches.
func inLog(name, file, test, old, replacement string) Mutant {
	return Mutant{
		Rule: "storage", Name: name, Pkg: walPkg, Test: test,
		File: "raftwal/" + file, Old: old, New: replacement,
	}
}

// walRules are about what is written, and found again.
var walRules = []Mutant{
	inLog("send before fsync", "appender.go", "^TestAppenderSharesSyncs$",
		"\t\tif err == nil {\n\t\t\terr = a.save(updates)\n\t\t}\n\t\tfor i := range group {\n\t\t\tgroup[i].done(err)\n\t\t}\n",
		"\t\tfor i := range group {\n\t\t\tgroup[i].done(err)\n\t\t}\n\t\tif err == nil {\n\t\t\terr = a.save(updates)\n\t\t}\n"),
	inLog("no sync after a write", "save.go", "^TestCrashAtEveryOperation$",
		"if err := w.seg.file.Sync(); err != nil {", "if err := error(nil); err != nil {"),
	inLog("HardState not synced", "save.go", "^TestCrashAtEveryOperation$",
		"if d.hard.term != old.term || d.hard.vote != old.vote || (!b.empty() && d.hard != old) {",
		"if !b.empty() && d.hard != old {"),
	inLog("vote alone is put off like a commit index", "save.go", "^TestVoteAloneIsDurable$",
		"if d.hard.term != old.term || d.hard.vote != old.vote || (!b.empty() && d.hard != old) {",
		"if d.hard.term != old.term || (!b.empty() && d.hard != old) {"),
	inLog("fsync error ignored", "save.go", "^TestFailureIsFinal$",
		"\tif err := w.seg.file.Sync(); err != nil {\n\t\treturn l.fail(fmt.Errorf(\"sync %s: %w\", w.seg.name, err))\n\t}\n",
		"\t_ = w.seg.file.Sync()\n"),
	inLog("write goes on after a failed fsync", "log.go", "^TestFailureIsFinal$",
		"\tl.w.failed = &FailedError{Cause: err}\n\treturn l.w.failed\n",
		"\treturn &FailedError{Cause: err}\n"),
	inLog("no directory fsync", "rotate.go", "^TestCrashAtEveryOperation$",
		"if err := l.dir.Sync(); err != nil {", "if err := error(nil); err != nil {"),
	inLog("segment named before it is synced", "rotate.go", "^TestCrashAtEveryOperation$",
		"\tif err := spare.file.Sync(); err != nil {\n", "\tif err := error(nil); err != nil {\n"),
	inLog("tail repair cuts at damage in the middle", "recover.go", "^TestFlipOfEveryBit$",
		"\tif found {\n", "\tif false && found {\n"),
	inLog("damage in a batch that was synced under a spare's name passes for a torn tail", "recover.go", "^TestDamageToTheFirstBatchesIsNoTornTail$",
		"\tif t.end < int64(s.sealed) {\n", "\tif false && t.end < int64(s.sealed) {\n"),
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
		Pkg: walPkg, Test: "TestFlipOfEveryBit",
	},
	inLog("Open does not settle", "log.go", "^TestOpenMakesDurableWhatItReads$",
		"if err := l.settle(); err != nil {", "if err := error(nil); err != nil {"),
	inLog("Open does not sync names that it has read", "recover.go", "^TestSpareOfAnEarlierProcessIsNoSegment$",
		"\tif err := l.syncDir(); err != nil {\n", "\tif err := error(nil); err != nil {\n"),
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
		Pkg: walPkg, Test: "TestCommitIndexNeverFallsBelowTheSnapshot",
	},
	inLog("torn tail not cut", "recover.go", "^TestTornTailIsCutOnce$",
		"\tif torn == nil {\n", "\tif true || torn == nil {\n"),
	inLog("CRC not chained", "record.go", "^TestTwoAttemptsAtOnePlaceNeverMix$",
		"\treturn crc32.Checksum(b, castagnoli) ^ chain*chainFactor\n",
		"\treturn crc32.Checksum(b, castagnoli)\n"),
	inLog("recycled segment keeps its nonce", "rotate.go", "^TestRecycledSegmentForgets$",
		"nonce: l.cfg.Nonce(),", "nonce: 7,"),
	inLog("a commit index that was put off passes for durable", "save.go", "^TestSaveCommit$",
		"if index <= l.w.hard.commit {", "if index <= l.mu.view.hard.commit {"),
	inLog("SaveCommit goes beyond the last entry", "save.go", "^TestSaveCommit$",
		"last := v.last(); index > last {", "last := v.last(); index > last+1 {"),
	inLog("log compacted before the checkpoint is durable", "compact.go", "^TestCompactStopsAtTheSnapshot$",
		"\tif covered := v.snap.GetMetadata().GetIndex(); index > covered {\n",
		"\tif covered := v.last(); index > covered {\n"),
	inLog("segments removed before the record of compaction is durable", "compact.go", "^TestCrashAtEveryOperation$",
		"\tif err := l.write(b); err != nil {\n\t\treturn err\n\t}\n\tl.mu.Lock()\n\tv.compact(base)\n\tl.mu.Unlock()\n\treturn l.retire(l.dead())\n",
		"\tl.mu.Lock()\n\tv.compact(base)\n\tl.mu.Unlock()\n\tif err := l.retire(l.dead()); err != nil {\n\t\treturn err\n\t}\n\treturn l.write(b)\n"),
	inLog("segment recycled under a reader", "compact.go", "^TestCompactionWhileReading$",
		"\tif !idle || !ok ||", "\tif !ok ||"),
	inLog("truncation of a conflicting tail not durable", "view.go", "^TestStorageAppend$",
		"\t\tv.slots.truncate(n)\n\t}\n\tv.slots.push(",
		"\t\tn += uint64(v.slots.head)\n\t\tv.slots.chunks[n/chunkLen][n%chunkLen] = slot{place: at, term: id.term}\n\t\treturn\n\t}\n\tv.slots.push("),
	inLog("conflicting tail cut in a batch of its own, before the entries", "save.go", "^TestCrashAtEveryOperation$",
		"\tif !l.w.batch.empty() {\n",
		"\tif n := len(l.w.offsets); n > 1 && updates[0].Entries[0].GetIndex() <= l.mu.view.last() {\n\t\tu := updates[0]\n\t\tu.Entries = u.Entries[:1]\n\t\tif _, err := l.encode([]Update{u}); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif err := l.write(&l.w.batch); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif _, err := l.encode(updates); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tif !l.w.batch.empty() {\n"),
	inLog("readers see a batch after its write has failed", "save.go", "^TestFullDisk$",
		"\t\tif err := l.write(&l.w.batch); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tl.w.hard = d.hard\n\t}\n\tl.publish(updates, d)\n\treturn nil\n",
		"\t\terr = l.write(&l.w.batch)\n\t\tl.w.hard = d.hard\n\t}\n\tl.publish(updates, d)\n\treturn err\n"),
	inLog("promise not in the head of a segment", "rotate.go", "^TestTheRestSurvivesItsSegment$",
		"\tif v.promise != 0 {\n", "\tif false {\n"),
	inLog("length of a file not checked", "segment.go", "^TestTruncationAtEveryByte$",
		"\tcase h.size != uint64(size):\n", "\tcase false:\n"),
	inLog("no lock against a second process", "fs/lock_flock.go", "^TestLogOnARealDisk$",
		"return flock(f, syscall.LOCK_EX)", "return flock(f, syscall.LOCK_SH)"),
}

// walFull take a full disk the way to compaction.
var walFull = []Mutant{
	inLog("entries use what compaction needs on a full disk", "rotate.go", "^TestFullDiskIsFreedByCompaction$",
		"\tcase useBulk:\n\t\treturn all\n", "\tcase useBulk:\n\t\treturn 0\n"),
	inLog("votes use what compaction needs on a full disk", "rotate.go", "^TestFullDiskIsFreedByCompaction$",
		"\t\treturn all * 6 / 8\n", "\t\treturn 0\n"),
	inLog("Flush has no share of the reserve", "save.go", "^TestFullDiskIsFreedByCompaction$",
		"\tb.use = u\n", "\t_ = u\n"),
	inLog("Flush uses what a checkpoint needs on a full disk", "rotate.go", "^TestNothingUsesTheReserveUp$",
		"\t\treturn all * 5 / 8\n", "\t\treturn 0\n"),
	inLog("checkpoint uses what compaction needs on a full disk", "rotate.go", "^TestNothingUsesTheReserveUp$",
		"\t\treturn compactSize\n", "\t\treturn 0\n"),
	inLog("checkpoints that free nothing use the reserve", "compact.go", "^TestNothingUsesTheReserveUp$",
		"\tb.use = l.useFor(useSnapshot, snap.GetMetadata().GetIndex())\n",
		"\tb.use = useSnapshot\n"),
	inLog("segments that an installed snapshot replaces free no space", "rotate.go", "^TestInstalledSnapshotFreesAFullDisk$",
		"\tif w.seg != nil {\n\t\t// Segments", "\tif false {\n\t\t// Segments"),
	inLog("full disk in Open has no type", "recover.go", "^TestOpenOnAFullDiskSaysSo$",
		"\tif fs.IsNoSpace(err) {\n\t\treturn &NoSpaceError{Cause: err}\n",
		"\tif fs.IsNoSpace(err) {\n\t\treturn err\n"),
	inLog("without space for the marker the log does not open", "segment.go", "^TestNoRoomForTheMarker$",
		"\tif fs.IsNoSpace(err) {\n", "\tif false && fs.IsNoSpace(err) {\n"),
}

// walOpen are about what Open makes, checks and refuses, and about what Save
// must refuse so that raft starts again.
var walOpen = []Mutant{
	inLog("commit index beyond the log is written", "save.go", "^TestCommitIndexBeyondTheLogIsRefused$",
		"\tif d.hard.commit > d.last {\n", "\tif false {\n"),
	inLog("last batch written again without a check", "recover.go", "^TestSettleChecksWhatItWritesAgain$",
		"reason != \"\" {\n\t\t\treturn s.corrupt(", "reason == \"-\" {\n\t\t\treturn s.corrupt("),
	inLog("only the head of the last batch checked", "recover.go", "^TestSettleChecksWhatItWritesAgain$",
		"\tlast, reason := new(scan).parse(b[batchHeader:], p.crc)\n",
		"\tlast, reason := t.chain+0*p.crc, \"\"\n"),
	inLog("log without its segments begins anew", "recover.go", "^TestLogWithoutItsSegmentsIsRefused$",
		"\tcase len(l.segments) == 0 && l.marked:\n",
		"\tcase len(l.segments) == 0 && l.marked && false:\n"),
	inLog("marker before the first segment is durable", "log.go", "^TestMarkerNeverPrecedesTheFirstSegment$",
		"\tif rec == nil {\n\t\terr = l.begin()\n",
		"\tif rec == nil {\n\t\terr = errors.Join(l.putMarker(files), l.begin())\n\t\tfiles.marked = true\n"),
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
	inLog("marker is not durable", "segment.go", "^TestLogWithoutMarkerOpens$",
		"\tif err := l.syncDir(); err != nil {\n", "\tif err := error(nil); err != nil {\n"),
	inLog("log of an earlier version never gets a marker", "log.go", "^TestLogWithoutMarkerOpens$",
		"\tif err := l.putMarker(files); err != nil {\n",
		"\tif rec != nil {\n\t\tfiles.marked = true\n\t}\n\tif err := l.putMarker(files); err != nil {\n"),
	inLog("file of more than 32 bits passes for a segment", "segment.go", "^TestSegmentOfMoreThan32BitsIsRefused$",
		"\tcase h.size > math.MaxUint32:\n", "\tcase h.size > math.MaxUint32 && false:\n"),
	{
		Rule: "storage", Name: "the sync of a new directory's name may fail",
		File: "raftwal/fs/os.go",
		Old:  "	if !missing && (",
		New:  "	if (",
		Pkg:  "./raftwal/fs", Test: "TestMakeDirToleratesAnotherUsersParent",
	},
}

// walSpares are about the time and the goroutine that makes a spare.
var walSpares = []Mutant{
	inLog("a spare is made all at once", "spares.go", "^TestSpareGrowsWithTheSegmentBeforeIt$",
		"min(n.made+s.piece(), s.size)", "s.size"),
	inLog("a spare is made although a segment has been freed", "spares.go", "^TestNoSpareIsMadeBesideAFreedSegment$",
		" || !s.lacks()", ""),
	inLog("the background tries again with each piece", "spares.go", "^TestSpareThatCannotBeMade$",
		"\t\tn.failed.Store(true)\n", ""),
	inLog("a spare that is half made is made anew", "spares.go", "^TestSegmentIsNeededBeforeItsSpareIsMade$",
		"\tif size != s.size {", "\tif true {"),
	inLog("pieces of a spare are not synced", "spares.go", "^TestSpareGrowsWithTheSegmentBeforeIt$",
		"if err := n.spare.file.Sync(); err != nil {", "if err := error(nil); err != nil {"),
	inLog("a spare is made twice while its last piece is being made", "spares.go", "^TestSegmentIsNeededWhileItsLastPieceIsMade$",
		"s.takeReady(size); ready != nil || err != nil {",
		"s.takeReady(0); ready != nil || err != nil {"),
}
