package main

const (
	nodePkg      = "./kvnode"
	storePkg     = "./kvnode/store"
	admissionPkg = "./kvnode/admission"
)

// members are bugs of a node: what is kept, and in which order log, store and
// raft hear of it.
var members = []Mutant{
	{
		Rule: "members", Name: "a removed member goes on", Pkg: nodePkg, Test: "^TestARemovedLeaderStopsUntold$",
		File: "kvnode/leave.go",
		Old:  "\tf.begun.Do(func() { f.workers.Go(f.leave) })\n",
		New:  "",
	},
	{
		Rule: "members", Name: "the ID of a removed member comes back", Pkg: nodePkg, Test: "^TestPlanChange$",
		File: "kvnode/change.go",
		Old:  " || members.Removed[c.Member.ID]:\n",
		New:  ":\n",
	},
	{
		Rule: "members", Name: "a change that may cost the quorum is made", Pkg: nodePkg, Test: "^TestStrictReconfiguration$",
		File: "kvnode/membership.go",
		Old:  "\tif active < quorum {\n",
		New:  "\tif active < quorum-1 {\n",
	},
	{
		Rule: "members", Name: "voters that have not started count as up", Pkg: nodePkg, Test: "^TestAVoterThatHasNotStartedIsNotUp$",
		File: "kvnode/membership.go",
		Old:  "\t\tif m.Instance == \"\" {\n\t\t\tcontinue\n",
		New:  "\t\tif m.Instance == \"\" {\n\t\t\tup[id] = true\n",
	},
	{
		Rule: "members", Name: "a change is not checked when it is applied", Pkg: nodePkg, Test: "^TestChangesAreCheckedWhenTheyAreApplied$",
		File: "kvnode/change.go",
		Old:  "\tif plan.refusal != nil {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "members", Name: "a learner that lags is promoted", Pkg: nodePkg, Test: "^TestALearnerJoinsAndIsPromoted$",
		File: "kvnode/membership.go",
		Old:  "\tif m.Learner && !ready {\n",
		New:  "\tif m.Learner && !ready && false {\n",
	},
	{
		Rule: "members", Name: "the lease is not told of a change", Pkg: nodePkg, Test: "^TestALearnerJoinsAndIsPromoted$",
		File: "kvnode/apply.go",
		Old:  "\t\ta.lease.ApplyConfStateAt(e.GetIndex(), conf)\n",
		New:  "",
	},
	{
		Rule: "members", Name: "a change counts before the log knows that it is committed", Pkg: nodePkg, Test: "^TestAnAcknowledgedChangeWaitsForNoAppender$",
		File: "kvnode/apply.go",
		Old:  "\tif !a.disk.saveCommit(e.GetIndex()) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "members", Name: "a change is acknowledged with the commit index in the appender's queue", Pkg: nodePkg, Test: "^TestAnAcknowledgedChangeWaitsForNoAppender$",
		File: "kvnode/disk.go",
		Old:  "\terr := d.wal.SaveCommit(index)\n",
		New:  "\terr := d.wal.Flush()\n",
	},
	{
		Rule: "members", Name: "a change is acknowledged although the disk was full", Pkg: nodePkg, Test: "^TestAChangeWaitsForRoom$",
		File: "kvnode/disk.go",
		Old:  "\tfor errors.Is(err, raftwal.ErrNoSpace) && d.retry(err) {\n",
		New:  "\tfor errors.Is(err, raftwal.ErrNoSpace) {\n\t\terr = nil\n\t}\n\tfor errors.Is(err, raftwal.ErrNoSpace) && d.retry(err) {\n",
	},
	{
		Rule: "members", Name: "a change is acknowledged before those who are left know it", Pkg: nodePkg, Test: "^TestWhoIsLeftKnowsOfARemoval$",
		File: "kvnode/membership.go",
		Old:  "\t\terr = c.farewells.awaitRelease(ctx) // whoever knows does not hear this member\n",
		New:  "",
	},
	{
		Rule: "members", Name: "every entry's commit index is synced", Pkg: nodePkg, Test: "^TestOnlyChangesOfMembershipSyncMore$",
		File: "kvnode/apply.go",
		Old:  "\t\ta.proposals.waiters.finish(",
		New:  "\t\t_ = a.disk.saveCommit(e.GetIndex())\n\t\ta.proposals.waiters.finish(",
	},
	{
		Rule: "members", Name: "an old change undoes a snapshot's configuration", Pkg: nodePkg, Test: "^TestAnOldChangeDoesNotUndoASnapshot$",
		File: "kvnode/apply.go",
		Old:  "\t\tif l.restored >= e.GetIndex() {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "apply", Name: "a read is admitted before what it must see is applied", Pkg: nodePkg, Test: "^TestAReadWaitsForWhatIsCommitted$",
		File: "kvnode/apply.go",
		Old:  "\tbytes := 0\n\tfor _, e := range j.entries {\n",
		New:  "\tbytes := 0\n\tif k := len(j.entries); k > 0 && !isConfChange(j.entries[k-1]) {\n\t\ta.lease.Applied(j.entries[k-1].GetIndex())\n\t}\n\tfor _, e := range j.entries {\n",
	},
	{
		Rule: "apply", Name: "work of a term is applied in another one", Pkg: storePkg, Test: "^TestFenceDropsCommandsOfOtherTerms$",
		File: "kvnode/store/apply.go",
		Old:  "\tcase c.Fence != 0 && c.Fence != term:\n",
		New:  "\tcase c.Fence > term:\n",
	},
	{
		Rule: "apply", Name: "a proposal's term is not on it", Pkg: nodePkg, Test: "^TestFencedWorkDoesNotOutliveItsTerm$",
		File: "kvnode/propose.go",
		Old:  "&store.Command{Fence: term, Request: r}",
		New:  "&store.Command{Request: r}",
	},
	{
		Rule: "restart", Name: "what a failed checkpoint left is counted twice", Pkg: storePkg, Test: "^TestFailedCheckpointIsCountedOnce$",
		File: "kvnode/store/checkpoint.go",
		Old:  "\t\tif v.main() <= was.Revision {\n",
		New:  "\t\tif v.main() < was.Revision {\n",
	},
	{
		Rule: "restart", Name: "all members make their checkpoints at once", Pkg: nodePkg, Test: "^TestMembersTakeTurnsWithCheckpoints$",
		File: "kvnode/checkpoint.go",
		Old:  "\t\tif id < c.ID() {\n",
		New:  "\t\tif id < c.ID() && false {\n",
	},
	{
		Rule: "restart", Name: "all members make their checkpoints at once where values are large", Pkg: nodePkg, Test: "^TestMembersTakeTurnsWithCheckpoints$",
		File: "kvnode/checkpoint.go",
		Old:  "int(c.turn(checkpointBytes)), true",
		New:  "0, true",
	},
	{
		Rule: "restart", Name: "a checkpoint by count ends the turns by bytes", Pkg: nodePkg, Test: "^TestMembersTakeTurnsWithCheckpoints$",
		File: "kvnode/checkpoint.go",
		Old:  "\t\tc.bytes %= checkpointBytes //",
		New:  "\t\tif turns > 0 {\n\t\t\tc.bytes = 0\n\t\t}\n\t\tc.bytes %= checkpointBytes //",
	},
	{
		Rule: "restart", Name: "records are written over before they are written", Pkg: storePkg, Test: "^TestRecordsLastUntilTheCommit$",
		File: "kvnode/store/cut.go",
		Old:  "return saveTx(tx, &m, &c.unsaved, in) })\n\tin.release()\n",
		New:  "defer in.release(); return saveTx(tx, &m, &c.unsaved, in) })\n",
	},
	{
		Rule: "restart", Name: "a checkpoint compacts what raft may scan", Pkg: nodePkg, Test: "^TestACheckpointLeavesWhatRaftMayScan$",
		File: "kvnode/checkpoint.go",
		Old:  "min(at.Index, c.told.Load())",
		New:  "at.Index",
	},
	{
		Rule: "restart", Name: "the log does not learn of a checkpoint after a crash", Pkg: nodePkg, Test: "^TestCrashBetweenCheckpointAndLog$",
		File: "kvnode/reconcile.go",
		Old:  "\tcase durable.Index > logged:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "restart", Name: "the store does not get the log's snapshot after a crash", Pkg: nodePkg, Test: "^TestCrashBetweenSnapshotAndStore$",
		File: "kvnode/reconcile.go",
		Old:  "\tcase durable.Index < logged:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "snapshot", Name: "a snapshot is kept whatever state is in it", Pkg: nodePkg, Test: "^TestASnapshotIsWhatItSays$",
		File: "kvnode/received.go",
		Old:  "\tif got.Index != want.GetIndex() ||",
		New:  "\tif false && got.Index != want.GetIndex() ||",
	},
	{
		Rule: "snapshot", Name: "a second snapshot of the same index replaces the first", Pkg: nodePkg, Test: "^TestASnapshotDoesNotReplaceItself$",
		File: "kvnode/received.go",
		Old:  "os.Link(part.Name(), path)",
		New:  "os.Rename(part.Name(), path)",
	},
	{
		Rule: "snapshot", Name: "a snapshot that is no news is refused", Pkg: nodePkg, Test: "^TestASnapshotThatIsNoNewsIsAcknowledged$",
		File: "kvnode/peers.go",
		Old:  "\t\t_, err = io.Copy(io.Discard, state)\n",
		New:  "\t\terr = errors.New(\"old\")\n",
	},
	{
		Rule: "snapshot", Name: "a restored cluster passes for the old one", Pkg: nodePkg, Test: "^TestOthersAreNotLetIntoARestoredCluster$",
		File: "kvnode/restoresnap.go",
		Old:  "fmt.Sprintf(\"%x\", id.ClusterID), fmt.Sprintf(\"%x\", sum),",
		New:  "",
	},
	{
		Rule: "token", Name: "a restore does not raise the term", Pkg: nodePkg, Test: "^TestTokensOfARestoredClusterAreNew$",
		File: "kvnode/restoresnap.go",
		Old:  "\t\treturn last + r.BumpTerm, nil\n",
		New:  "\t\treturn last, nil\n",
	},
	{
		Rule: "token", Name: "a raised term is told, and the log begins in the old one", Pkg: nodePkg, Test: "^TestTokensOfARestoredClusterAreNew$",
		File: "kvnode/restoresnap.go",
		Old:  "HardState{Term: &term,",
		New:  "HardState{Term: new(at.Term),",
	},
	{
		Rule: "token", Name: "members restored into different terms pass for one cluster", Pkg: nodePkg, Test: "^TestASecondRestoreMayBeginLater$",
		File: "kvnode/restoresnap.go",
		Old:  ", fmt.Sprint(r.BumpTerm))\n",
		New:  ")\n",
	},
	{
		Rule: "snapshot", Name: "a snapshot's checksum is not compared", Pkg: nodePkg, Test: "^TestRestoreRefuses$",
		File: "kvnode/restoresnap_file.go",
		Old:  "\tif !skip && !bytes.Equal(sum, want) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "disk", Name: "a member whose log has no room for the last checkpoint does not start", Pkg: nodePkg, Test: "^TestAFullDiskBetweenCheckpointAndLog$",
		File: "kvnode/reconcile.go",
		Old:  "\tif !errors.Is(err, raftwal.ErrNoSpace) {\n\t\treturn err\n\t}\n\thard",
		New:  "\tif err != nil {\n\t\treturn err\n\t}\n\thard",
	},
	{
		Rule: "disk", Name: "it starts with the configuration of the log's snapshot", Pkg: nodePkg, Test: "^TestAFullDiskBetweenCheckpointAndLog$",
		File: "kvnode/reconcile.go",
		Old:  "\thard, _, err := l.Log.InitialState()\n\treturn hard, raftpb.EnsureConfState(l.conf), err\n",
		New:  "\treturn l.Log.InitialState()\n",
	},
	{
		Rule: "disk", Name: "a store that is ahead of its log passes for a full disk", Pkg: nodePkg, Test: "^TestAStoreThatIsAheadOfItsLogIsRefused$",
		File: "kvnode/reconcile.go",
		Old:  "\tif !errors.Is(err, raftwal.ErrNoSpace) {\n\t\treturn err\n\t}\n\thard",
		New:  "\tif err == nil {\n\t\treturn err\n\t}\n\thard",
		More: []Edit{{File: "kvnode/reconcile.go", Old: "readErr != nil || hard.GetCommit() < at.Index {", New: "hard == nil {"}},
	},
	{
		Rule: "disk", Name: "a stalled disk does not cost the lease", Pkg: nodePkg, Test: "^TestAStalledDiskCostsTheLeaseReads$",
		File: "kvnode/disk.go",
		Old:  "\t\td.lease.SetDiskStalled(stalled)\n",
		New:  "",
	},
	{
		Rule: "disk", Name: "a leader with a full disk stays", Pkg: nodePkg, Test: "^TestALeaderOfThreeWithAFullDiskStepsAside$",
		File: "kvnode/loop.go",
		Old:  "\t\tl.transfers.stepAside()\n",
		New:  "",
	},
	{
		Rule: "disk", Name: "a failed sync is answered", Pkg: nodePkg, Test: "^Test(AFailedSyncEndsTheMember|FailedSyncsNeverAcknowledge)$",
		File: "kvnode/append.go",
		Old:  "\t\ta.fail(fmt.Errorf(\"write the log: %w\", err))\n\t\treturn\n",
		New:  "\t\t_ = fmt.Errorf(\"write the log: %w\", err)\n",
	},
}
