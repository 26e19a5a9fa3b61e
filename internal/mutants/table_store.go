package main

// storeSim is the test that runs the store in whole clusters.
const storeSim = "./kvnode/storesim"

// stores are bugs between a store, its checkpoints and the log. Where a rule is
// the embedder's, it is broken in the simulator's node.
var stores = []Mutant{
	{
		Rule: "storage", Name: "checkpoint acknowledged, and the log compacted, before it is durable", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\treturn s.update(func(tx Tx) error { return saveTx(tx, m, dirty) })\n",
		New:  "\t_ = s.update(func(tx Tx) error { return saveTx(tx, m, dirty) })\n\treturn nil\n",
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
		Old:  "\tdata, err := m.encode()\n",
		New:  "\tahead := *m\n\tahead.Index++\n\tdata, err := ahead.encode()\n",
	},
	{
		Rule: "storage", Name: "what a failed checkpoint would have saved is forgotten", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\t\tst.unsaved.add(dirty)\n",
		New:  "\t\tst.unsaved.add(unsaved{})\n",
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
		Rule: "storage", Name: "a snapshot is restored without a check for damage", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/load.go",
		Old:  "\tif l.records != m.Records || l.sum != m.Sum {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "storage", Name: "deletes of one revision in map order", Pkg: storeSim, Test: "^TestSimulation$",
		File: "kvnode/store/write.go",
		Old:  "\tfor _, v := range found {\n",
		New:  "\torder := map[*version]bool{}\n\tfor _, v := range found {\n\t\torder[v] = true\n\t}\n\tfor v := range order {\n",
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
