package main

// storeSim is the test that runs the store in whole clusters.
const storeSim = "./kvnode/storesim"

// cutTest compares what each commit of a checkpoint leaves with what the entries make.
const cutTest = "^TestEachCommitOfACheckpointIsOneOfItsIndex$"

// stores are bugs between a store, its checkpoints and the log. Where a rule is
// the embedder's, it is broken in the simulator's node.
var stores = []Mutant{
	{
		Rule: "storage", Name: "what follows a put in an entry is not looked at", Pkg: storePkg, Test: "^FuzzDecodePut$",
		File: "kvnode/store/decodeput.go",
		Old:  "\tif n != len(data)-1 {",
		New:  "\tif n < 0 {",
	},
	{
		Rule: "storage", Name: "the store keeps a part of the entry", Pkg: storePkg, Test: "^TestAPutIsDecodedByHand$",
		File: "kvnode/store/decodeput.go",
		Old:  "append([]byte(nil), b...)",
		New:  "append(b, put.Value[:0]...)",
	},
	{
		Rule: "storage", Name: "a value that is empty is another one than package proto's", Pkg: storePkg, Test: "^FuzzDecodePut$",
		File: "kvnode/store/decodeput.go",
		Old:  "append([]byte(nil), b...)",
		New:  "append([]byte{}, b...)",
	},
	{
		Rule: "storage", Name: "checkpoint acknowledged, and the log compacted, before it is durable", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/cut.go",
		Old:  "\tin.release()\n\tif err != nil {\n\t\treturn err\n\t}\n",
		New:  "\tin.release()\n\t_ = err\n",
	},
	{
		Rule: "storage", Name: "log compacted although the checkpoint failed", Pkg: storeSim, Test: "^TestSimulation$",
		File: "leaderlease/leasetest/checkpoint.go",
		Old:  "|| n.machine.Checkpoint(n.committed) != nil {",
		New:  "|| n.machine.Checkpoint(n.committed) != nil && !n.machine.Durable() {",
	},
	{
		Rule: "storage", Name: "checkpoint without asking the log", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\tif before != nil {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "storage", Name: "checkpoint's index ahead of its content", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\treturn m.save(tx)\n",
		New:  "\tahead := *m\n\tahead.Index++\n\treturn ahead.save(tx)\n",
	},
	{
		Rule: "storage", Name: "what a failed checkpoint would have saved is forgotten", Pkg: storePkg, Test: "^TestCrashAtEveryStepOfACheckpoint$",
		File: "kvnode/store/cut.go",
		Old:  "\tin.release()\n\tif err != nil {\n\t\treturn err\n",
		New:  "\tin.release()\n\tif err != nil {\n\t\ts.mu.Lock()\n\t\tst.cuts = st.cuts[1:]\n\t\ts.mu.Unlock()\n\t\treturn err\n",
	},
	{
		Rule: "storage", Name: "a checkpoint ends with the first of its commits", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\tfor _, c := range cuts {\n",
		New:  "\tfor _, c := range cuts[:min(len(cuts), 1)] {\n",
	},
	{
		Rule: "storage", Name: "a commit says of which index it is when it is made, not when it was cut", Pkg: storePkg, Test: cutTest,
		File: "kvnode/store/cut.go",
		Old:  "\tm := c.meta\n",
		New:  "\ts.mu.Lock()\n\tm := st.capture()\n\ts.mu.Unlock()\n",
	},
	{
		Rule: "storage", Name: "a cut is made before the index of its newest entry is published", Pkg: storePkg, Test: cutTest,
		File: "kvnode/store/apply.go",
		Old:  "\tst.applied.Store(index)\n\tst.cutIfLarge(s.cutBytes)\n",
		New:  "\tst.cutIfLarge(s.cutBytes)\n\tst.applied.Store(index)\n",
	},
	{
		Rule: "storage", Name: "what is freed after its cut is left out of it", Pkg: storePkg, Test: cutTest,
		File: "kvnode/store/compact.go",
		Old:  "\tif v.main() <= st.cutRevision {\n",
		New:  "\tfor _, c := range st.cuts {\n\t\tif c.dropped == nil {\n\t\t\tc.dropped = make(map[*Version]struct{})\n\t\t}\n\t\tc.dropped[v] = struct{}{}\n\t}\n\tif v.main() <= st.cutRevision {\n",
	},
	{
		Rule: "storage", Name: "what is freed is deleted by a cut of before the compaction", Pkg: storePkg, Test: cutTest,
		File: "kvnode/store/compact.go",
		Old:  "\t\tst.unsaved.trimmed = append(st.unsaved.trimmed, recordOf(v))\n",
		New:  "\t\tto := &st.unsaved\n\t\tif n := len(st.cuts); n > 0 {\n\t\t\tto = &st.cuts[n-1].unsaved\n\t\t}\n\t\tto.trimmed = append(to.trimmed, recordOf(v))\n",
	},
	{
		Rule: "storage", Name: "deletions come a commit after the tombstones that were freed with them", Pkg: storePkg, Test: cutTest,
		File: "kvnode/store/cut.go",
		Old:  "\tst.cuts = append(st.cuts, &cut{meta: m, conf: st.conf, unsaved: st.unsaved})\n",
		New:  "\tlate := unsaved{trimmed: st.unsaved.trimmed}\n\tst.unsaved.trimmed = nil\n\tst.cuts = append(st.cuts, &cut{meta: m, conf: st.conf, unsaved: st.unsaved}, &cut{meta: m, conf: st.conf, unsaved: late})\n",
	},
	{
		Rule: "storage", Name: "a checkpoint takes in what is written while it is made", Pkg: storePkg, Test: "^TestACheckpointEndsWhileOthersWrite$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\tfor _, c := range cuts {\n\t\tif err == nil {\n",
		New:  "\tfor range 1000 {\n\t\tif len(st.cuts) == 0 {\n\t\t\tbreak\n\t\t}\n\t\tc := st.cuts[0]\n\t\tif err == nil {\n",
		More: []Edit{{"kvnode/store/checkpoint.go", "index, cuts := st.cutIndex, st.cuts\n", "index := st.cutIndex\n"}},
	},
	{
		Rule: "storage", Name: "all that was not saved is written in one commit", Pkg: storePkg, Test: cutTest,
		File: "kvnode/store/apply.go",
		Old:  "\tst.cutIfLarge(s.cutBytes)\n",
		New:  "",
	},
	{
		Rule: "storage", Name: "a compaction is deleted in one commit", Pkg: storePkg, Test: "^TestACompactionIsDeletedInSeveralCommits$",
		File: "kvnode/store/compact.go",
		Old:  "\t\tst.cutIfLarge(s.cutBytes)\n",
		New:  "",
	},
	{
		Rule: "storage", Name: "replay applies an entry twice", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/apply.go",
		Old:  "\t\treturn Result{Err: ErrStale}\n",
		New:  "\t\tst.applied.Store(index)\n",
	},
	{
		Rule: "storage", Name: "value fetched before the read check", Pkg: storeSim, Test: "^TestSimulation$",
		File: "leaderlease/leasetest/client.go",
		Old:  "\t\t\trun := n.run\n\t\t\tstart(n.lease, ctx, func(r",
		New:  "\t\t\trun, early := n.run, n.Version(key)\n\t\t\tstart(n.lease, ctx, func(r",
		More: []Edit{{"leaderlease/leasetest/client.go", "\t\t\t\tdone(n.Version(key), r.Path, err)", "\t\t\t\tdone(early, r.Path, err)"}},
	},
	{
		Rule: "storage", Name: "restore keeps old keys", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/restore.go",
		Old:  "\ts.state.Store(st)\n",
		New:  "\tfor _, c := range s.state.Load().index.next(make([]*chain, 0, 4), nil, nil, false) {\n\t\tif st.index.find(c.key) == nil {\n\t\t\tst.index.add(c)\n\t\t}\n\t}\n\ts.state.Store(st)\n",
	},
	{
		Rule: "storage", Name: "restore is visible before it is durable", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/restore.go",
		Old:  "\treturn st, c, staged.Install()\n",
		New:  "\ts.state.Store(st)\n\treturn st, c, staged.Install()\n",
	},
	{
		Rule: "storage", Name: "a snapshot is restored without a check for damage", Pkg: storePkg, Test: "^TestOpenRefusesWhatIsNotOurs$",
		File: "kvnode/store/load.go",
		Old:  "\tif l.records != m.Records || l.sum != m.Sum {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "storage", Name: "deletes of one revision in map order", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/write.go",
		Old:  "\tfor _, v := range found {\n",
		New:  "\torder := map[*Version]bool{}\n\tfor _, v := range found {\n\t\torder[v] = true\n\t}\n\tfor v := range order {\n",
	},
	{
		Rule: "storage", Name: "members are not in the checkpoint", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/meta.go",
		Old:  "\t\tm.Members = append(m.Members, members.ByID[id])\n",
		New:  "\t\tm.Members = append(m.Members, Member{ID: id})\n",
	},
	{
		Rule: "storage", Name: "compacted revision is not in the checkpoint", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/meta.go",
		Old:  "Compacted: st.compacted.Load(),",
		New:  "Compacted: -1,",
	},
	{
		Rule: "storage", Name: "a compaction frees what is visible at its revision", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/compact.go",
		Old:  "\t\tif v == nil || v.main() > target {\n",
		New:  "\t\tif v == nil || v.main() > target+1 {\n",
	},
	{
		Rule: "storage", Name: "what a store begins with is in memory only", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/store.go",
		Old:  "\tif err := cfg.Backend.Settle(); err != nil {\n",
		New:  "\tif err := error(nil); err != nil {\n",
	},
	{
		Rule: "storage", Name: "what a store begins with is in memory only, with bbolt", Pkg: storeSim, Test: "^TestSimulationOverBolt$",
		File: "kvnode/store/store.go",
		Old:  "\tif err := cfg.Backend.Settle(); err != nil {\n",
		New:  "\tif err := error(nil); err != nil {\n",
	},
	{
		Rule: "storage", Name: "a checkpoint goes on from a failed one that is in memory only", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\tif s.unsettled {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "storage", Name: "a checkpoint goes on from a failed one that is in memory only, with bbolt", Pkg: storeSim, Test: "^TestSimulationOverBolt$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\tif s.unsettled {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "storage", Name: "meta page is synced again and not written", Pkg: storePkg, Test: "^TestSettleMakesDurableWhatAFailedCommitLeft$",
		File: "kvnode/store/boltdb/settle.go",
		Old:  "\tif _, err := f.WriteAt(page, at); err != nil {\n",
		New:  "\tif _, _, err := page, at, error(nil); err != nil {\n",
	},
	{
		Rule: "storage", Name: "meta page is written again and not synced", Pkg: storePkg, Test: "^TestSettleMakesDurableWhatAFailedCommitLeft$",
		File: "kvnode/store/boltdb/settle.go",
		Old:  "\treturn f.Sync()\n",
		New:  "\treturn nil\n",
	},
	{
		Rule: "storage", Name: "the older meta page is written again", Pkg: storePkg, Test: "^TestSettleMakesDurableWhatAFailedCommitLeft$",
		File: "kvnode/store/boltdb/pages.go",
		Old:  "order.Uint64(m[48:]) > order",
		New:  "order.Uint64(m[48:]) < order",
	},
	{
		Rule: "limits", Name: "the database never grows for those who write", Pkg: storePkg + "/boltdb", Test: "^TestSizeIsThatOfTheLastCommit$",
		File: "kvnode/store/boltdb/boltdb.go",
		Old:  "\tf.measure()\n\treturn errors.Join",
		New:  "\treturn errors.Join",
	},
	{
		Rule: "storage", Name: "a record that says it is a bucket is followed", Pkg: storePkg + "/boltdb", Test: "^TestARecordThatSaysItIsABucketIsDamage$",
		File: "kvnode/store/boltdb/pages.go",
		Old:  "\tif w.inside {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "storage", Name: "bbolt's file is not settled", Pkg: storePkg, Test: "^TestOpenWritesAgain$",
		File: "kvnode/store/boltdb/settle.go",
		Old:  "\terr = settlePath(b.path, int64(f.db.Info().PageSize))\n",
		New:  "",
	},
	{
		Rule: "storage", Name: "a store behind the log's snapshot is refused", Pkg: nodePkg, Test: "^TestAStoreBehindTheLogsSnapshot$",
		File: "kvnode/reconcile.go",
		Old:  "\t\tif again {\n",
		New:  "\t\tif again && false {\n",
	},
	{
		Rule: "storage", Name: "a store is replayed from a log that does not reach back to it", Pkg: nodePkg, Test: "^TestAStoreTooFarBehindTheLog$",
		File: "kvnode/reconcile.go",
		Old:  "err != nil || from.Index+1 < first {\n",
		New:  "err != nil || first == 0 {\n",
	},
	{
		Rule: "storage", Name: "a store of another log is replayed", Pkg: nodePkg, Test: "^TestAStoreOfAnotherLogIsRefused$",
		File: "kvnode/reconcile.go",
		Old:  "\treturn term == from.Term, err\n",
		New:  "\treturn term > 0, err\n",
	},
	{
		Rule: "storage", Name: "raft begins with the configuration of the log's snapshot", Pkg: nodePkg, Test: "^TestRaftBeginsWithTheStoresConfiguration$",
		File: "kvnode/reconcile.go",
		Old:  "\thard, _, err := l.Log.InitialState()\n\treturn hard, raftpb.EnsureConfState(l.conf), err\n",
		New:  "\treturn l.Log.InitialState()\n",
	},
	{
		Rule: "storage", Name: "what a node begins with is in memory only", Pkg: nodePkg, Test: "^TestPowerFailureAfterAFailedSync$",
		File: "kvnode/store/store.go",
		Old:  "\tif err := cfg.Backend.Settle(); err != nil {\n",
		New:  "\tif err := error(nil); err != nil {\n",
	},
}
