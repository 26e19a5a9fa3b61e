package main

const (
	counting = "^TestCountsAreThoseOfALook$"
	heapPkg  = "./cmd/internal/heap"
)

// sizes are bugs of what makes a large store small and quick: counts by place, a hash table
// of chains, versions that are no messages, and memory that is given back.
var sizes = []Mutant{
	{
		Rule: "records", Name: "a value is part of the page that it was read from", Pkg: storePkg, Test: "^TestVersionsKeepTheirValues$",
		File: "kvnode/store/record.go",
		Old:  "bytes.Clone(f.value)",
		New:  "bytes.TrimSuffix(f.value, nil)",
	},
	{
		Rule: "records", Name: "a field of another type is taken for a number", Pkg: storePkg, Test: "^FuzzFieldsAreThoseOfAKeyValue$",
		File: "kvnode/store/recordfields.go",
		Old:  "typ == protowire.VarintType",
		New:  "typ != protowire.BytesType",
	},
	{
		Rule: "index", Name: "a start does not wait for the places of its keys", Pkg: storePkg, Test: "^TestAStartHasAllKeysInOrder$",
		File: "kvnode/store/loadorder.go",
		Old:  "\tclose(o.queue)\n\t<-o.done\n",
		New:  "\tclose(o.queue)\n",
	},
	{
		Rule: "index", Name: "the last keys of a start have no places", Pkg: storePkg, Test: "^TestAStartHasAllKeysInOrder$",
		File: "kvnode/store/loadorder.go",
		Old:  "\to.queue <- o.batch\n\tclose(o.queue)\n",
		New:  "\tclose(o.queue)\n",
	},
	{
		Rule: "counts", Name: "a tombstone that a start finds first is counted", Pkg: storePkg, Test: counting,
		File: "kvnode/store/load.go",
		Old:  "\t\tif v.tombstone() {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "counts", Name: "a count at an older revision is that of the newest", Pkg: storePkg, Test: counting,
		File: "kvnode/store/count.go",
		Old:  "\t\t\treturn w.takeBack(ctx, int64(live), changed, key, bound(end))\n",
		New:  "\t\t\treturn int64(live), nil\n",
	},
	{
		Rule: "counts", Name: "what was deleted since is taken back the wrong way", Pkg: storePkg, Test: counting,
		File: "kvnode/store/count.go",
		Old:  "\t\tcase v.tombstone():\n\t\t\tn++\n",
		New:  "\t\tcase v.tombstone():\n\t\t\tn--\n",
	},
	{
		Rule: "counts", Name: "what is beyond the range is taken back, too", Pkg: storePkg, Test: counting,
		File: "kvnode/store/count.go",
		Old:  " || len(end) > 0 && bytes.Compare(v.GetKey(), end) >= 0:\n",
		New:  ":\n",
	},
	{
		Rule: "counts", Name: "a further version of a key is taken for a new one", Pkg: storePkg, Test: counting,
		File: "kvnode/store/count.go",
		Old:  "\t\tcase !v.first() && !v.tombstone(): // there before and after\n",
		New:  "",
	},
	{
		Rule: "counts", Name: "a compaction that passes a count is not noticed", Pkg: storePkg, Test: "^TestACompactionThatPassesACountIsSeen$",
		File: "kvnode/store/count.go",
		Old:  "\tif err == nil && w.compacted() {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "counts", Name: "a transaction counts by place what it has written", Pkg: storePkg, Test: "^TestStoreDoesWhatTheModelDoes$", Model: true,
		File: "kvnode/store/count.go",
		Old:  "\tif len(end) > 0 && w.rev <= w.st.revision.Load() {\n",
		New:  "\tif len(end) > 0 {\n",
	},
	{
		Rule: "counts", Name: "keys that were deleted count", Pkg: storePkg, Test: counting,
		File: "kvnode/store/index.go",
		Old:  "all - between(x.dead, key, end), x.changed\n",
		New:  "all, x.changed\n",
	},
	{
		Rule: "counts", Name: "the trees do not say of which revision they are", Pkg: storePkg, Test: counting,
		File: "kvnode/store/index.go",
		Old:  "\t\tx.changed = rev\n",
		New:  "\t\tx.changed = 0\n",
	},
	{
		Rule: "counts", Name: "a key that is gone for good stays among the dead", Pkg: storePkg, Test: counting,
		File: "kvnode/store/index.go",
		Old:  "\tx.ordered.Delete(c)\n\tx.dead.Delete(c)\n",
		New:  "\tx.ordered.Delete(c)\n",
	},
	{
		Rule: "counts", Name: "the trees are not told of what is loaded", Pkg: storePkg, Test: counting,
		File: "kvnode/store/load.go",
		Old:  "\tl.st.index.note(v.main(), v)\n",
		New:  "",
	},
	{
		Rule: "counts", Name: "the trees hear of a revision after its readers", Pkg: storePkg, Test: "^TestARevisionIsCountedOnceItIsSeen$",
		File: "kvnode/store/write.go",
		Old:  "\tst.index.note(w.base+1, w.changes...)\n\tst.revision.Store(w.base + 1)\n",
		New:  "\tst.revision.Store(w.base + 1)\n\tdefer st.index.note(w.base+1, slices.Clone(w.changes)...)\n",
	},
	{
		Rule: "counts", Name: "a page counts what it looked at", Pkg: storePkg, Test: counting,
		File: "kvnode/store/range.go",
		Old:  "\tif err == nil && !whole {\n",
		New:  "\tif err == nil && !whole && false {\n",
	},
	{
		Rule: "table", Name: "a look-up ends at the first bucket", Pkg: storePkg, Test: "^TestTable", Model: true,
		File: "kvnode/store/table.go",
		Old:  "\t\tif tags&passed == 0 {\n\t\t\treturn nil\n",
		New:  "\t\tif true {\n\t\t\treturn nil\n",
	},
	{
		Rule: "table", Name: "a removal frees the slot beside it, too", Pkg: storePkg, Test: "^TestTable", Model: true,
		File: "kvnode/store/table.go",
		Old:  "\t\t\t\tb.tags.Store(b.tags.Load() &^ (0xff << (8 * s)))\n",
		New:  "\t\t\t\tb.tags.Store(b.tags.Load() &^ (0xffff << (8 * s)))\n",
	},
	{
		Rule: "table", Name: "what has the tag has the key", Pkg: storePkg, Test: "^TestTable", Model: true,
		File: "kvnode/store/chain.go",
		Old:  "c != nil && bytes.Equal(c.key, key) }\n",
		New:  "c != nil && (bytes.Equal(c.key, key) || len(key) > 4) }\n",
	},
	{
		Rule: "memory", Name: "a database that was read whole stays in memory", Pkg: "./kvnode/store/boltdb", Test: "^TestRecordsThatWereReadTakeNoMemory$",
		File: "kvnode/store/boltdb/image.go",
		Old:  "\t\tdefer drop(i.tx)\n",
		New:  "",
	},
	{
		Rule: "memory", Name: "an image that is closed ends the process that reads it", Pkg: "./kvnode/store/boltdb", Test: "^TestAnImageThatWasClosedIsNotRead$",
		File: "kvnode/store/boltdb/image.go",
		Old:  "\treturn Guard(func() error {\n\t\tdefer drop(i.tx)\n",
		New:  "\tdefer drop(i.tx)\n\treturn Guard(func() error {\n",
	},
	{
		Rule: "memory", Name: "what has left the memory can be read no more", Pkg: "./kvnode/store/boltdb", Test: "^TestOthersReadWhatLeavesTheMemory$",
		File: "kvnode/store/boltdb/drop_linux.go",
		Old:  "syscall.SYS_MADVISE, ",
		New:  "syscall.SYS_MUNMAP, ",
	},
	{
		Rule: "table", Name: "readers see a part that is being filled", Pkg: storePkg, Test: "^TestAPartIsSeenOnceItIsFilled$",
		File: "kvnode/store/table.go",
		Old:  "\tp.passed = 0\n",
		New:  "\tp.passed = 0\n\tp.buckets.Store(&buckets)\n",
	},
	{
		Rule: "table", Name: "what passed a bucket once is never forgotten", Pkg: storePkg, Test: "^TestTableForgetsWhatPassed$",
		File: "kvnode/store/table.go",
		Old:  " || p.passed > len(buckets)/2 {\n",
		New:  " {\n",
	},
	{
		Rule: "versions", Name: "a record lacks the TTL lease", Pkg: storePkg, Test: "^TestARecordHasTheBytesOfItsMessage$", Model: true,
		File: "kvnode/store/record.go",
		Old:  "\tnumber(6, v.lease)\n",
		New:  "",
	},
	{
		Rule: "versions", Name: "an older version's database is read without its TTL leases' keys", Pkg: storePkg, Test: "^TestADatabaseOfBeforeOpens$",
		File: "kvnode/store/record.go",
		Old:  ", lease: f.lease}\n",
		New:  "}\n",
	},
	{
		Rule: "versions", Name: "what was compacted before it was saved is saved", Pkg: storePkg, Test: "^TestWhatIsCompactedInTimeIsNotSaved$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\t\tif _, dropped := dirty.dropped[v]; dropped {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "versions", Name: "only keys are answered with values", Pkg: storePkg, Test: "^TestStoreDoesWhatTheModelDoes$", Model: true,
		File: "kvnode/store/range.go",
		Old:  "\t\tif r.GetKeysOnly() {\n",
		New:  "\t\tif !r.GetKeysOnly() {\n",
	},
	{
		Rule: "memory", Name: "the limit is below what is alive", Pkg: heapPkg, Test: "^TestTheLimitLeavesRoom$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "max(k.memory/10*8, s.live/10*13) + floor",
		New:  "k.memory/10*8 + floor",
	},
	{
		Rule: "memory", Name: "memory is given back while it is wanted", Pkg: heapPkg, Test: "^TestMemoryIsGivenBackWhenItIsCalm$",
		File: "cmd/internal/heap/keeper.go",
		Old:  " || float64(fresh) > float64(gain)*calm || ",
		New:  " || float64(fresh) < 0 || ",
	},
	{
		Rule: "memory", Name: "memory is given back each time", Pkg: heapPkg, Test: "^TestMemoryIsGivenBackWhenItIsCalm$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "\tk.gave = now\n",
		New:  "",
	},
	{
		Rule: "memory", Name: "what is soon taken back is given each minute", Pkg: heapPkg, Test: "^TestWhatIsTakenBackIsGivenMoreSeldom$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "\tk.rest = min(max(2*k.rest, pause), longest)\n",
		New:  "\tk.rest = pause\n",
	},
	{
		Rule: "memory", Name: "what was once taken back soon is given seldom for good", Pkg: heapPkg, Test: "^TestWhatIsTakenBackIsGivenMoreSeldom$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "\t\tk.rest = 0\n",
		New:  "",
	},
	{
		Rule: "memory", Name: "what stays is tried again each minute", Pkg: heapPkg, Test: "^TestWhatStaysIsNotTriedAgain$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "s.gain() - k.stays\n",
		New:  "s.gain()\n",
	},
	{
		Rule: "memory", Name: "nothing is given back", Pkg: heapPkg, Test: "^TestAProcessAtRest$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "\t\t\tof.giveBack(ctx, s)\n",
		New:  "",
	},
	{
		Rule: "memory", Name: "each look decides", Pkg: heapPkg, Test: "^TestAProcessAtRest$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "i%looks == 0 && ",
		New:  "",
	},
	{
		Rule: "memory", Name: "what stays is not measured", Pkg: heapPkg, Test: "^TestAProcessAtRest$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "\t\t\tk.stays = of.look().gain()\n",
		New:  "",
	},
	{
		Rule: "memory", Name: "the collector is told the same each second", Pkg: heapPkg, Test: "^TestAProcessAtRest$",
		File: "cmd/internal/heap/keeper.go",
		Old:  "l != limit {\n",
		New:  "l != limit || true {\n",
		More: []Edit{{File: "cmd/internal/heap/keeper.go", Old: "p != percent {\n", New: "p != percent || true {\n"}},
	},
	{
		Rule: "memory", Name: "all is given back at once", Pkg: heapPkg, Test: "^TestMemoryIsGivenBackInSteps$",
		File: "cmd/internal/heap/release.go",
		Old:  "take(min(now-keep, step))",
		New:  "take(now - keep)",
	},
	{
		Rule: "memory", Name: "the limit stays where it was to give back", Pkg: heapPkg, Test: "^TestTakeGivesBack$",
		File: "cmd/internal/heap/release.go",
		Old:  "\tdebug.SetMemoryLimit(set)\n",
		New:  "\t_ = set\n",
	},
	{
		Rule: "memory", Name: "an operator's GOGC does not count", Pkg: heapPkg, Test: "^TestASmallHeapMayGrow$",
		File: "cmd/internal/heap/floor.go",
		Old:  "os.Getenv(\"GOGC\") != \"\" || ",
		New:  "",
	},
	{
		Rule: "memory", Name: "the floor is provided", Pkg: heapPkg, Test: "^TestUntouchTakesPages$",
		File: "cmd/internal/heap/untouch_linux.go",
		Old:  "\t\t_ = syscall.Madvise(room[begin:end-page], syscall.MADV_DONTNEED) // or it stays, as it was\n",
		New:  "\t\t_ = syscall.MADV_DONTNEED\n",
	},
	{
		Rule: "memory", Name: "only the nearest control group counts", Pkg: heapPkg, Test: "^TestCgroupLimit$",
		File: "cmd/internal/heap/cgroup.go",
		Old:  "(limit == 0 || n < limit)",
		New:  "limit == 0",
	},
}
