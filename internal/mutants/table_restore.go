package main

const (
	dirFile     = "kvnode/restoredir.go"
	restoreFile = "kvnode/restorelog.go"
)

// restores are bugs of a restore from a data directory.
var restores = []Mutant{
	{
		Rule: "datadir", Name: "the checkpoint alone is restored", Pkg: nodePkg, Test: "^TestADataDirectoryIsRestoredWithItsLog$",
		File: restoreFile,
		Old:  "next <= d.last; {", New: "next <= d.at.Index; {",
	},
	{
		Rule: "datadir", Name: "what is not known to be committed is left out", Pkg: nodePkg, Test: "^TestEntriesBeyondTheCommitIndexAreRestored$",
		File: restoreFile,
		Old:  "next <= d.last; {", New: "next <= d.hard.GetCommit(); {",
		More: []Edit{{restoreFile, "d.log.Entries(next, d.last+1, changesPage)", "d.log.Entries(next, d.hard.GetCommit()+1, changesPage)"}},
	},
	{
		Rule: "datadir", Name: "changes of members are passed over", Pkg: nodePkg, Test: "^TestARestoreAppliesAsAMemberDoes$",
		File: restoreFile,
		Old:  "\tif !isConfChange(e) {\n", New: "\tif true {\n",
	},
	{
		Rule: "datadir", Name: "the log does not count for the cluster's ID", Pkg: nodePkg, Test: "^TestDirectoriesThatDifferBeginDifferentClusters$",
		File: restoreFile,
		Old:  "\t\t\tsum.Write(e.GetData())\n", New: "\t\t\tsum.Reset()\n",
	},
	{
		Rule: "datadir", Name: "the identity of another directory is taken", Pkg: nodePkg, Test: "^TestRestoreRefusesADirectory$",
		File: restoreFile,
		Old:  "m.Instance != d.id.Instance:", New: "m.Instance == \"\":",
	},
	{
		Rule: "datadir", Name: "an entry of a newer format is applied", Pkg: nodePkg, Test: "^TestRestoreStopsAtANewerFormat$",
		File: restoreFile,
		Old:  "\tif plan.stop == nil {\n", New: "\tif plan.stop = nil; plan.stop == nil {\n",
	},
	{
		Rule: "datadir", Name: "the directory of a member that runs is read", Pkg: nodePkg, Test: "^TestRestoreRefusesADirectory$",
		File: "kvnode/memberdir/dir.go",
		Old:  "walfs.Hold(d.Path(lockFile))", New: "walfs.Hold(d.Path(\"no lock\"))",
		More: []Edit{{"kvnode/memberdir/dir.go", "lock, d.inUse(raftwal.CheckLock(d.Log()))", "lock, nil"}},
	},
	{
		Rule: "datadir", Name: "a member starts while its directory is read", Pkg: nodePkg, Test: "^TestADirectoryThatIsReadIsNotRunWith$",
		File: "raftwal/fs/held.go",
		Old:  "\treturn f, nil\n", New: "\treturn noLock{}, f.Close()\n",
	},
	{
		Rule: "datadir", Name: "a directory is read by one at a time", Pkg: nodePkg, Test: "^TestADirectoryThatIsReadIsNotRunWith$",
		File: "raftwal/fs/held.go",
		Old:  "shareLock(f)", New: "lockFile(f)",
	},
	{
		Rule: "datadir", Name: "a state of another term than the log's is taken", Pkg: nodePkg, Test: "^TestRestoreRefusesTheLogOfAnotherTerm$",
		File: dirFile,
		Old:  "\tif term != d.at.Term {\n", New: "\tif term == 0 {\n",
	},
	{
		Rule: "datadir", Name: "a log that ends before the state is taken", Pkg: nodePkg, Test: "^TestRestoreRefusesADirectory$",
		File: dirFile,
		Old:  "\tif d.at.Index > d.last {\n", New: "\tif d.last == 0 {\n",
	},
	{
		Rule: "datadir", Name: "a snapshot that was received is forgotten", Pkg: nodePkg, Test: "^TestARestoreBeginsWithTheSnapshotThatWasReceived$",
		File: dirFile,
		Old:  "\tif newest == d.at.Index {\n", New: "\tif newest > 0 {\n",
	},
	{
		Rule: "datadir", Name: "a snapshot counts only where the log lacks what is before it", Pkg: nodePkg, Test: "^TestASnapshotNewerThanTheLogIsRestored$",
		File: dirFile,
		Old:  "\tif newest == d.at.Index {\n", New: "\tif first, _ := d.log.FirstIndex(); newest == d.at.Index || d.at.Index+1 >= first {\n",
	},
	{
		Rule: "datadir", Name: "entries that were not committed are replayed on a snapshot", Pkg: nodePkg, Test: "^TestASnapshotNewerThanTheLogIsRestored$",
		File: dirFile,
		Old:  "d.received, d.last = d.at.Index, d.at.Index\n", New: "d.received = d.at.Index\n",
	},
	{
		Rule: "datadir", Name: "a snapshot takes the place of what the log knows to be committed", Pkg: nodePkg, Test: "^TestRestoreRefusesAReceivedSnapshot$",
		File: dirFile,
		Old:  "|| d.at.Index <= d.hard.GetCommit() {", New: "{",
	},
	{
		Rule: "datadir", Name: "a snapshot hides a log that is cut off", Pkg: nodePkg, Test: "^TestAReceivedSnapshotDoesNotHideThatTheLogIsCutOff$",
		File: dirFile,
		Old:  "\tif d.at.Index+1 >= first {\n", New: "\tif false {\n",
	},
	{
		Rule: "datadir", Name: "a snapshot does not count without an entry in the log", Pkg: nodePkg, Test: "^TestASnapshotIsRestoredWithoutAnEntry$",
		File: dirFile,
		Old:  "case d.at.Index == 0 && d.last == 0:", New: "case d.last == 0:",
	},
	{
		Rule: "datadir", Name: "a snapshot stands in for a log that is lost", Pkg: nodePkg, Test: "^TestASnapshotIsRestoredWithoutAnEntry$",
		File: dirFile,
		Old:  "d.id.Started && d.last == 0", New: "false && d.last == 0",
	},
	{
		Rule: "datadir", Name: "a snapshot that cannot be read is passed over", Pkg: nodePkg, Test: "^TestRestoreRefusesAReceivedSnapshot$",
		File: dirFile,
		Old:  "\tif err == nil && at.Index != newest {\n", New: "\tif err != nil || at.Index != newest {\n\t\treturn nil\n\t}\n\tif err != nil {\n",
	},
	{
		Rule: "datadir", Name: "terms in which the member voted come again", Pkg: nodePkg, Test: "^TestASnapshotWithoutATermIsRefused$",
		File: "kvnode/restoresnap.go",
		Old:  "last := max(at.Term, voted)", New: "last := max(at.Term, 0*voted)",
	},
	{
		Rule: "datadir", Name: "a copied store.db passes for a snapshot", Pkg: nodePkg, Test: "^TestABareStoreIsCalledACheckpoint$",
		File: "kvnode/restoresnap_file.go",
		Old:  "!info.Mode().IsRegular() || info.Size()%snapshotAlign != 0 {", New: "!info.Mode().IsRegular() || info.Size() > 0 {",
	},
	{
		Rule: "datadir", Name: "who restores into the source is told that a member runs with it", Pkg: nodePkg, Test: "^TestRestoreRefusesADirectory$",
		File: "kvnode/restoresnap.go",
		Old:  "\tif missing == nil {\n", New: "\tif missing == nil && cfg.DataDir == \"\" {\n",
	},
}
