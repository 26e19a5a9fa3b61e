package main

const apiPkg = "./kvnode/etcdapi"

// requests are bugs of what clients ask for: what they are told, and what they
// must not be allowed.
var requests = []Mutant{
	{
		Rule: "read", Name: "the value is fetched before the read is admitted", Pkg: apiPkg, Test: "^TestValueIsFetchedAfterAdmission$",
		File: "kvnode/etcdapi/kv.go",
		Old:  "\tif err := s.mayRead(ctx, r.GetSerializable()); err != nil {\n\t\treturn nil, err\n\t}\n\tif isGet(r) {\n\t\treturn s.get(r.GetKey()), nil\n",
		New:  "\tearly := s.get(r.GetKey())\n\tif err := s.mayRead(ctx, r.GetSerializable()); err != nil {\n\t\treturn nil, err\n\t}\n\tif isGet(r) {\n\t\treturn early, nil\n",
	},
	{
		Rule: "read", Name: "a get of an old revision gives the newest", Pkg: apiPkg, Test: "^TestShortCutIsForPlainGets$",
		File: "kvnode/etcdapi/kv.go",
		Old:  "len(r.GetRangeEnd()) == 0 && r.GetRevision() <= 0 &&",
		New:  "len(r.GetRangeEnd()) == 0 &&",
	},
	{
		Rule: "read", Name: "the header of a transaction is that of its operations", Pkg: apiPkg, Test: "^TestHeadersWithinATxnHaveTheRevision$",
		File: "kvnode/store/txn.go",
		Old:  "\tresp.Header = &pb.ResponseHeader{Revision: w.revision()}",
		New:  "\tresp.Header = w.header()",
	},
	{
		Rule: "read", Name: "a transaction that only compares reads stale state", Pkg: apiPkg, Test: "^TestOnlySerializableTransactionsAreLocal$",
		File: "kvnode/etcdapi/readtxn.go",
		Old:  "\treturn all && ranges > 0\n",
		New:  "\treturn all\n",
	},
	{
		Rule: "read", Name: "a transaction that deletes is not replicated", Pkg: apiPkg, Test: "^TestTransactionsThatMayWriteAreReplicated$",
		File: "kvnode/etcdapi/readtxn.go",
		Old:  "return op.GetRequestRange() != nil })",
		New:  "return op.GetRequestPut() == nil })",
	},
	{
		Rule: "range", Name: "a compaction during a read leaves keys out", Pkg: storePkg, Test: "^TestACompactionThatPassesARangeHidesNothing$",
		File: "kvnode/store/range.go",
		Old:  "\tif err == nil && w.compacted() {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "token", Name: "the create revision changes with each put", Pkg: storePkg, Test: "^TestStoreDoesWhatTheModelDoes$", Model: true,
		File: "kvnode/store/write.go",
		Old:  "= prev.create, prev.number+1\n",
		New:  "= w.base+1, prev.number+1\n",
	},
	{
		Rule: "token", Name: "a key that was deleted keeps its create revision", Pkg: storePkg, Test: "^TestStoreDoesWhatTheModelDoes$", Model: true,
		File: "kvnode/store/write.go",
		Old:  "\t\tprev = c.head.Load().live()\n",
		New:  "\t\tif prev = c.head.Load(); prev != nil && prev.tombstone() {\n\t\t\tif prev = prev.prev.Load(); prev == nil {\n\t\t\t\tprev = nil\n\t\t\t}\n\t\t}\n",
	},
	{
		Rule: "token", Name: "revisions come again after a restore that raises them", Pkg: storePkg, Test: "^TestRefoundMayRaiseTheRevision$",
		File: "kvnode/store/refound.go",
		Old:  "\tm.Revision += r.BumpRevision\n",
		New:  "",
	},
	{
		Rule: "token", Name: "a restore leaves no revision for writes", Pkg: storePkg, Test: "^TestRefoundLeavesRevisions$",
		File: "kvnode/store/refound.go",
		Old:  "const maxRevision = math.MaxInt64 / 2\n",
		New:  "const maxRevision = math.MaxInt64\n",
	},
	{
		Rule: "txn", Name: "compares within see what came before them", Pkg: storePkg, Test: "^Test(TxnReadsItsOwnWrites|StoreDoesWhatTheModelDoes)$", Model: true,
		File: "kvnode/store/txn.go",
		Old:  "\t\t\tone.ResponseTxn, path, err = w.execute(ctx, op.GetRequestTxn(), path)\n",
		New:  "\t\t\tif path, err = w.view().decide(ctx, nil, op.GetRequestTxn()); err == nil {\n\t\t\t\tone.ResponseTxn, path, err = w.execute(ctx, op.GetRequestTxn(), path)\n\t\t\t}\n",
	},
	{
		Rule: "txn", Name: "a transaction that fails leaves its first writes", Pkg: storePkg, Test: "^Test(WritesThatAreRefused|KeysFollowTheirNewestVersion|StoreDoesWhatTheModelDoes)$", Model: true,
		File: "kvnode/store/txn.go",
		Old:  "\tif _, err := w.check(t, path); err != nil {\n\t\treturn nil, err\n\t}\n",
		New:  "",
		More: []Edit{{"kvnode/store/write.go", "\t\tw.rollback()\n\t\treturn nil, err\n", "\t\tif len(w.changes) > 0 {\n\t\t\ts.publish(st, w)\n\t\t}\n\t\treturn nil, err\n"}},
	},
	{
		Rule: "txn", Name: "one key is put twice", Pkg: apiPkg, Test: "^TestTxnMustNotWriteOneKeyTwice$",
		File: "kvnode/etcdapi/overlap.go",
		Old:  "\tif _, twice := w.puts[key]; twice ||",
		New:  "\tif _, twice := w.puts[key]; twice && false ||",
	},
	{
		Rule: "limits", Name: "nesting is not bounded", Pkg: apiPkg, Test: "^TestInvalidRequestsAreRefusedInTheWordsOfEtcd$",
		File: "kvnode/etcdapi/check.go",
		Old:  "checkOp(op, maxOps-n)",
		New:  "checkOp(op, maxOps)",
	},
	{
		Rule: "limits", Name: "a request that exceeds the quota is let through", Pkg: apiPkg, Test: "^TestQuotaCountsWhatIsNotSaved$",
		File: "kvnode/etcdapi/quota.go",
		Old:  "\tif size+cost < a.cfg.QuotaBytes {\n",
		New:  "\tif size < a.cfg.QuotaBytes {\n",
	},
	{
		Rule: "limits", Name: "what no checkpoint has costs nothing", Pkg: apiPkg, Test: "^TestQuotaCountsWhatIsNotSaved$",
		File: "kvnode/etcdapi/quota.go",
		Old:  "\treturn max(size, inUse+s.Unsaved())\n",
		New:  "\treturn max(size, inUse)\n",
	},
	{
		Rule: "metrics", Name: "calls that fail are not counted by their code", Pkg: apiPkg + "/callmetrics", Test: "^TestAsTheOriginal$",
		File: "kvnode/etcdapi/callmetrics/method.go",
		Old:  "st = status.FromContextError(err) // as gRPC does",
		New:  "st = status.New(codes.Unknown, \"\")",
	},
	{
		Rule: "limits", Name: "requests under way are not bounded", Pkg: apiPkg, Test: "^TestRequestsUnderWayAreBounded$",
		File: "kvnode/etcdapi/intercept.go",
		Old:  "under > int64(a.cfg.MaxInFlight) {\n",
		New:  "under > int64(a.cfg.MaxInFlight)*2 {\n",
	},
	{
		Rule: "forward", Name: "what was forwarded is forwarded again", Pkg: apiPkg, Test: "^TestWhatWasForwardedIsNotForwardedAgain$",
		File: "kvnode/etcdapi/forward.go",
		Old:  "\tcase leader == 0 || wasForwarded(ctx):\n",
		New:  "\tcase leader == 0:\n",
	},
	{
		Rule: "forward", Name: "a forwarded request waits for a leader that was cut off", Pkg: apiPkg, Test: "^TestAForwardedRequestIsNotStuckWithTheOldLeader$",
		File: "kvnode/etcdapi/forward.go",
		Old:  "\t\tcase <-changed:\n\t\t\tcancel()\n",
		New:  "\t\tcase <-changed:\n",
	},
	{
		Rule: "backup", Name: "a backup lacks what no checkpoint has", Pkg: apiPkg, Test: "^TestSnapshotIsAFileAndItsChecksum$",
		File: "kvnode/etcdapi/snapshot.go",
		Old:  "\tif err := s.node.Checkpoint(out.Context()); err != nil {\n",
		New:  "\tif err := error(nil); err != nil {\n",
	},
	{
		Rule: "limits", Name: "a compaction that took effect fails for want of room", Pkg: apiPkg, Test: "^TestAPhysicalCompactionWithoutRoomHasCompacted$",
		File: "kvnode/etcdapi/kv.go",
		Old:  "errors.Is(err, kvnode.ErrDiskFull)",
		New:  "false && errors.Is(err, kvnode.ErrDiskFull)",
	},
	{
		Rule: "metrics", Name: "a slow request is not logged", Pkg: apiPkg, Test: "^TestSlowRequestsAreLogged$",
		File: "kvnode/etcdapi/times.go",
		Old:  "\tif took <= a.cfg.WarnRequest && (",
		New:  "\tif true || took <= a.cfg.WarnRequest && (",
	},
	{
		Rule: "metrics", Name: "slow requests fill the log", Pkg: apiPkg, Test: "^TestSlowRequestsDoNotFillTheLog$",
		File: "kvnode/etcdapi/times.go",
		Old:  "rate.Sometimes{First: 10, Interval: time.Second}",
		New:  "rate.Sometimes{Every: 1}",
	},
	{
		Rule: "metrics", Name: "the line of a slow request has its value", Pkg: "./kvnode/internal/requests", Test: "^TestDescribe$",
		File: "kvnode/internal/requests/describe.go",
		Old:  "value_size=%d\", len(r.GetValue()))",
		New:  "value_size=%s\", r.GetValue())",
	},
	{
		Rule: "metrics", Name: "keys in the log are as long as they are", Pkg: "./kvnode/internal/requests", Test: "^TestDescriptionsAreBounded$",
		File: "kvnode/internal/requests/describe.go",
		Old:  "\tif len(key) <= keyBytes {\n",
		New:  "\tif len(key) >= 0 {\n",
	},
	{
		Rule: "metrics", Name: "an entry that holds up all others is not logged", Pkg: nodePkg, Test: "^TestSlowAppliesAreLogged$",
		File: "kvnode/applying.go",
		Old:  "\tif took <= a.cfg.WarnApply {\n",
		New:  "\tif took >= 0 {\n",
	},
	{
		Rule: "metrics", Name: "what was refused counts as an operation", Pkg: storePkg, Test: "^TestOpsAreCounted$",
		File: "kvnode/store/write.go",
		Old:  "\t\tw.rollback()\n",
		New:  "\t\ts.ops.add(&w.ops)\n\t\tw.rollback()\n",
	},
	{
		Rule: "metrics", Name: "events of streams that have ended are forgotten", Pkg: watchPkg, Test: "^TestStatsOfStreams$",
		File: "kvnode/store/watch/stream.go",
		Old:  "\t\th.mu.sent += s.sent.Load()\n",
		New:  "",
	},
	{
		Rule: "metrics", Name: "the time of a sync is that of its write, too", Pkg: walPkg, Test: "^TestStatsTellWriteFromSync$",
		File: "raftwal/stats.go",
		Old:  "c.flushes.Note(now.Sub(written))",
		New:  "c.flushes.Note(now.Sub(begun))",
	},
	{
		Rule: "members", Name: "who does not lead is asked for its cluster besides", Pkg: apiPkg, Test: "^TestWhatNeedsNoOrigin$",
		File: "kvnode/etcdapi/samecluster.go",
		Old:  "\t\treturn err // another one is asked\n",
		New:  "",
	},
}
