package main

const (
	nodePkg  = "./kvnode"
	storePkg = "./kvnode/store"
)

// members are bugs of a node: who may take part, what is kept, and in which
// order log, store and raft hear of it.
var members = []Mutant{
	{
		Rule: "identity", Name: "an empty log of a member that has run before is taken for a new one", Pkg: nodePkg, Test: "^TestAMemberWithoutItsLogIsRefused$",
		File: "kvnode/start.go",
		Old:  "\tif n.id.Started || n.store.Durable().Index > 0 {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "identity", Name: "the identity is written before the directory is locked", Pkg: nodePkg, Test: "^TestADirectoryInUseIsRefused$",
		File: "kvnode/start.go",
		Old:  "\tif n.lock, err = n.cfg.lock(); err != nil {\n\t\treturn false, err\n\t}\n\tif n.id, _, err = openIdentity(&n.cfg); err != nil {\n\t\treturn false, err\n\t}\n",
		New:  "\tif n.id, _, err = openIdentity(&n.cfg); err != nil {\n\t\treturn false, err\n\t}\n\tif n.lock, err = n.cfg.lock(); err != nil {\n\t\treturn false, err\n\t}\n",
	},
	{
		Rule: "identity", Name: "a restore does not lock the directory", Pkg: nodePkg, Test: "^TestADirectoryInUseIsRefused$",
		File: "kvnode/restoresnap.go",
		Old:  "\tlock, err := cfg.lock()\n",
		New:  "\tlock, err := io.NopCloser(nil), os.MkdirAll(cfg.DataDir, 0o700)\n",
		More: []Edit{{File: "kvnode/restoresnap.go", Old: "\t\"fmt\"\n", New: "\t\"fmt\"\n\t\"io\"\n"}},
	},
	{
		Rule: "identity", Name: "a directory of another cluster is taken", Pkg: nodePkg, Test: "^TestDirectoriesOfOthersAreRefused$",
		File: "kvnode/identity.go",
		Old:  "\tif !slices.ContainsFunc(cfg.Cluster,",
		New:  "\tif false && !slices.ContainsFunc(cfg.Cluster,",
	},
	{
		Rule: "identity", Name: "who was met is not asked when a member is let in", Pkg: nodePkg, Test: "^TestWhoIsAdmitted$",
		File: "kvnode/peers.go",
		Old:  "\tif first != h.Instance {\n",
		New:  "\tif first != h.Instance && false {\n",
	},
	{
		Rule: "identity", Name: "who was met is not on disk", Pkg: nodePkg, Test: "^TestWhoWasMetIsRemembered$",
		File: "kvnode/acquaintance.go",
		Old:  "\t\terr = replaceFile(a.dir, acquaintancesFile, data)\n",
		New:  "\t\t_ = data\n",
	},
	{
		Rule: "identity", Name: "the registry's instance is not asked when a member is let in", Pkg: nodePkg, Test: "^TestWhoIsAdmitted$",
		File: "kvnode/peers.go",
		Old:  "\tif ok && m.Instance != \"\" && m.Instance != h.Instance {\n",
		New:  "\tif ok && m.Instance == \"\" && m.Instance != h.Instance {\n",
	},
	{
		Rule: "identity", Name: "the registry takes another instance for the same member", Pkg: storePkg, Test: "^TestMembersFollowChangesAndRegistrations$",
		File: "kvnode/store/members.go",
		Old:  "\tif known.Instance != \"\" && known.Instance != r.Instance {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "identity", Name: "a member that was removed is let in", Pkg: nodePkg, Test: "^TestWhoIsAdmitted$",
		File: "kvnode/peers.go",
		Old:  "\tif members.Removed[h.From] {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "founding", Name: "founders take part at once", Pkg: nodePkg, Test: "^TestFoundersWaitForThoseWhoWouldKnow$",
		File: "kvnode/campaign.go",
		Old:  "\tc.admitted = make(map[uint64]bool)\n",
		New:  "\tc.admitted = make(map[uint64]bool)\n\tc.open = c.open || !n.id.Joined\n",
	},
	{
		Rule: "founding", Name: "joiners take part at once", Pkg: nodePkg, Test: "^TestJoinersWaitForThoseWhoWouldKnow$",
		File: "kvnode/campaign.go",
		Old:  "\tc.admitted = make(map[uint64]bool)\n",
		New:  "\tc.admitted = make(map[uint64]bool)\n\tc.open = c.open || n.id.Joined\n",
	},
	{
		Rule: "founding", Name: "a majority of the founders is enough", Pkg: nodePkg, Test: "^TestFoundersWaitForThoseWhoWouldKnow$",
		File: "kvnode/campaign.go",
		Old:  "; missing > 0 {\n",
		New:  "; missing > 1 {\n",
	},
	{
		Rule: "founding", Name: "who has not been let in votes", Pkg: nodePkg, Test: "^Test(Founders|Joiners)WaitForThoseWhoWouldKnow$",
		File: "kvnode/loop.go",
		Old:  "\tif !n.loop.campaigns.open {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "founding", Name: "a joiner that is started as a founder founds", Pkg: nodePkg, Test: "^TestAJoinerNeverFounds$",
		File: "kvnode/start.go",
		Old:  "\tif fresh && !n.id.Joined {\n",
		New:  "\tif fresh && !n.cfg.Existing {\n",
	},
	{
		Rule: "members", Name: "a removed member goes on", Pkg: nodePkg, Test: "^TestARemovedLeaderStopsUntold$",
		File: "kvnode/apply.go",
		Old:  "\tif change != nil && change.Remove == n.ID() {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "members", Name: "the ID of a removed member comes back", Pkg: nodePkg, Test: "^TestPlanChange$",
		File: "kvnode/membership.go",
		Old:  "\tcase members.Removed[m.ID]:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "members", Name: "a change that may cost the quorum is made", Pkg: nodePkg, Test: "^TestStrictReconfiguration$",
		File: "kvnode/membership.go",
		Old:  "; active < quorum {\n",
		New:  "; active < quorum-1 {\n",
	},
	{
		Rule: "members", Name: "voters that have not started count as up", Pkg: nodePkg, Test: "^TestAVoterThatHasNotStartedIsNotUp$",
		File: "kvnode/membership.go",
		Old:  "\t\tif up[id] && m.Instance != \"\" {\n",
		New:  "\t\tif up[id] || m.Instance == \"\" {\n",
	},
	{
		Rule: "members", Name: "a change is not checked when it is applied", Pkg: nodePkg, Test: "^TestChangesAreCheckedWhenTheyAreApplied$",
		File: "kvnode/apply.go",
		Old:  "\tif refusal != nil {\n",
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
		Old:  "\t\tn.lease.ApplyConfState(conf)\n",
		New:  "",
	},
	{
		Rule: "members", Name: "a change counts before the log knows that it is committed", Pkg: nodePkg, Test: "^TestAnAcknowledgedChangeWaitsForNoAppender$",
		File: "kvnode/apply.go",
		Old:  "\tif !n.saveCommit(e.GetIndex()) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "members", Name: "a change is acknowledged with the commit index in the appender's queue", Pkg: nodePkg, Test: "^TestAnAcknowledgedChangeWaitsForNoAppender$",
		File: "kvnode/apply.go",
		Old:  "\terr := n.wal.SaveCommit(index)\n",
		New:  "\terr := n.wal.Flush()\n",
	},
	{
		Rule: "members", Name: "a change is acknowledged although the disk was full", Pkg: nodePkg, Test: "^TestAChangeWaitsForRoom$",
		File: "kvnode/apply.go",
		Old:  "\tfor errors.Is(err, raftwal.ErrNoSpace) && n.retryFullDisk(err) {\n",
		New:  "\tfor errors.Is(err, raftwal.ErrNoSpace) {\n\t\terr = nil\n\t}\n\tfor errors.Is(err, raftwal.ErrNoSpace) && n.retryFullDisk(err) {\n",
	},
	{
		Rule: "members", Name: "a change is acknowledged before those who are left know it", Pkg: nodePkg, Test: "^TestWhoIsLeftKnowsOfARemoval$",
		File: "kvnode/membership.go",
		Old:  "\t\tn.confirm(ctx)\n",
		New:  "",
	},
	{
		Rule: "members", Name: "every entry's commit index is synced", Pkg: nodePkg, Test: "^TestOnlyChangesOfMembershipSyncMore$",
		File: "kvnode/apply.go",
		Old:  "\tdefault:\n\t\tn.waiters.finish(",
		New:  "\tdefault:\n\t\t_ = n.saveCommit(e.GetIndex())\n\t\tn.waiters.finish(",
	},
	{
		Rule: "members", Name: "an old change undoes a snapshot's configuration", Pkg: nodePkg, Test: "^TestAnOldChangeDoesNotUndoASnapshot$",
		File: "kvnode/apply.go",
		Old:  "\t\tif n.loop.restored >= e.GetIndex() {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "apply", Name: "a read is admitted before what it must see is applied", Pkg: nodePkg, Test: "^TestAReadWaitsForWhatIsCommitted$",
		File: "kvnode/apply.go",
		Old:  "\tbytes := 0\n\tfor _, e := range j.entries {\n",
		New:  "\tbytes := 0\n\tif k := len(j.entries); k > 0 && !isConfChange(j.entries[k-1]) {\n\t\tn.lease.Applied(j.entries[k-1].GetIndex())\n\t}\n\tfor _, e := range j.entries {\n",
	},
	{
		Rule: "apply", Name: "work of a term is applied in another one", Pkg: storePkg, Test: "^TestFenceDropsCommandsOfOtherTerms$",
		File: "kvnode/store/apply.go",
		Old:  "\tcase c.Fence != 0 && c.Fence != term:\n",
		New:  "\tcase c.Fence > term:\n",
	},
	{
		Rule: "apply", Name: "a proposal's term is not on it", Pkg: nodePkg, Test: "^TestARevocationDoesNotOutliveItsTerm$",
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
		Old:  "\t\tif id < n.ID() {\n",
		New:  "\t\tif id < n.ID() && false {\n",
	},
	{
		Rule: "restart", Name: "a checkpoint compacts what raft may scan", Pkg: nodePkg, Test: "^TestACheckpointLeavesWhatRaftMayScan$",
		File: "kvnode/checkpoint.go",
		Old:  "min(at.Index-n.cfg.CatchUpEntries, n.told.Load())",
		New:  "at.Index - n.cfg.CatchUpEntries",
	},
	{
		Rule: "restart", Name: "the log does not learn of a checkpoint after a crash", Pkg: nodePkg, Test: "^TestCrashBetweenCheckpointAndLog$",
		File: "kvnode/start.go",
		Old:  "\tcase durable.Index > logged:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "restart", Name: "the store does not get the log's snapshot after a crash", Pkg: nodePkg, Test: "^TestCrashBetweenSnapshotAndStore$",
		File: "kvnode/start.go",
		Old:  "\tcase durable.Index < logged:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "snapshot", Name: "a snapshot is kept whatever state is in it", Pkg: nodePkg, Test: "^TestASnapshotIsWhatItSays$",
		File: "kvnode/snapshot.go",
		Old:  "\tif got.Index != want.GetIndex() ||",
		New:  "\tif false && got.Index != want.GetIndex() ||",
	},
	{
		Rule: "snapshot", Name: "a second snapshot of the same index replaces the first", Pkg: nodePkg, Test: "^TestASnapshotDoesNotReplaceItself$",
		File: "kvnode/snapshot.go",
		Old:  "os.Link(part.Name(), path)",
		New:  "os.Rename(part.Name(), path)",
	},
	{
		Rule: "snapshot", Name: "a snapshot that is no news is refused", Pkg: nodePkg, Test: "^TestASnapshotThatIsNoNewsIsAcknowledged$",
		File: "kvnode/peers.go",
		Old:  "\t\tp.Receive(m)\n\t\treturn nil\n",
		New:  "\t\treturn errors.New(\"old\")\n",
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
		Old:  "\t\treturn at.Term + r.BumpTerm, nil\n",
		New:  "\t\treturn at.Term, nil\n",
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
		Rule: "disk", Name: "a stalled disk does not cost the lease", Pkg: nodePkg, Test: "^TestAStalledDiskCostsTheLeaseReads$",
		File: "kvnode/append.go",
		Old:  "\t\tn.lease.SetDiskStalled(stalled)\n",
		New:  "",
	},
	{
		Rule: "disk", Name: "a leader with a full disk stays", Pkg: nodePkg, Test: "^TestALeaderOfThreeWithAFullDiskStepsAside$",
		File: "kvnode/append.go",
		Old:  "\t\tn.stepAside()\n",
		New:  "",
	},
	{
		Rule: "disk", Name: "a failed sync is answered", Pkg: nodePkg, Test: "^Test(AFailedSyncEndsTheMember|FailedSyncsNeverAcknowledge)$",
		File: "kvnode/append.go",
		Old:  "\t\tn.fail(fmt.Errorf(\"write the log: %w\", err))\n\t\treturn\n",
		New:  "\t\t_ = fmt.Errorf(\"write the log: %w\", err)\n",
	},
}
