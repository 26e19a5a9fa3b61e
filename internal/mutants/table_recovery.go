package main

// recovery are bugs of a member that comes back: with an older state than it had, or
// as two.
var recovery = []Mutant{
	{
		Rule: "replay", Name: "stale reads do not wait for the log", Pkg: nodePkg, Test: "^TestNoReadAfterACrashIsOlderThanAnAcknowledgedPut$",
		File: "kvnode/read.go",
		Old:  "\t\tif err := n.awaitReplay(ctx); err != nil {\n",
		New:  "\t\tif err := error(nil); err != nil {\n",
	},
	{
		Rule: "replay", Name: "stale reads wait for the commit index on disk only", Pkg: nodePkg, Test: "^TestNoReadAfterACrashIsOlderThanAnAcknowledgedPut$",
		File: "kvnode/replay.go",
		Old:  "\t_, err := n.Read(ctx, ReadLease)\n",
		New:  "\terr := ctx.Err()\n",
	},
	{
		Rule: "replay", Name: "a member that is alone gives up waiting for its log", Pkg: nodePkg, Test: "^TestALonelyMemberWaitsForItsLog$",
		File: "kvnode/replay.go",
		Old:  "\t\tif r.alone || !slices.Equal(",
		New:  "\t\tif true || !slices.Equal(",
	},
	{
		Rule: "replay", Name: "a member that is left alone waits for a leader for ever", Pkg: nodePkg, Test: "^TestASurvivorServesWhatItKnows$",
		File: "kvnode/replay.go",
		Old:  "replayPatience*n.cfg.ElectionTimeout)",
		New:  "1000*n.cfg.ElectionTimeout)",
	},
	{
		Rule: "replay", Name: "a change of membership that may not be committed is passed over", Pkg: nodePkg, Test: "^TestOwnEntriesEndAtAChange$",
		File: "kvnode/replay.go",
		Old:  "\t\t\tif at = e.GetIndex(); isConfChange(e) {\n",
		New:  "\t\t\tif at = e.GetIndex(); isConfChange(e) && false {\n",
	},
	{
		Rule: "replay", Name: "a hash is of what is applied so far", Pkg: apiPkg, Test: "^TestNothingIsAnsweredBeforeTheLogIsApplied$",
		File: "kvnode/etcdapi/maintenance.go",
		Old:  "_ *pb.HashRequest) (*pb.HashResponse, error) {\n\tif err := s.settled(ctx); err != nil {\n",
		New:  "_ *pb.HashRequest) (*pb.HashResponse, error) {\n\tif err := ctx.Err(); err != nil {\n",
	},
	{
		Rule: "replay", Name: "a watch begins before the log is applied", Pkg: apiPkg, Test: "^TestNothingIsAnsweredBeforeTheLogIsApplied$",
		File: "kvnode/etcdapi/watch.go",
		Old:  "\tif err := s.settled(ctx); err != nil {\n",
		New:  "\tif err := ctx.Err(); err != nil {\n",
	},
	{
		Rule: "replay", Name: "a snapshot is of what is applied so far", Pkg: apiPkg, Test: "^TestNothingIsAnsweredBeforeTheLogIsApplied$",
		File: "kvnode/etcdapi/snapshot.go",
		Old:  "\tif err := s.settled(out.Context()); err != nil {\n",
		New:  "\tif err := out.Context().Err(); err != nil {\n",
	},
	{
		Rule: "set back", Name: "a heartbeat beyond the log is dropped", Pkg: nodePkg, Test: "^TestAHeartbeatBeyondTheLogEndsTheMember$",
		File: "kvnode/setback.go",
		Old:  "\tcase m.GetType() == raftpb.MsgHeartbeat:\n",
		New:  "\tcase m.GetType() == raftpb.MsgSnap:\n",
	},
	{
		Rule: "set back", Name: "whoever went back is let in", Pkg: nodePkg, Test: "^TestWhoHasGoneBack$",
		File: "kvnode/setback.go",
		Old:  "\tif h.Log.Term < term || h.Log.Last < index {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "set back", Name: "a term that is too old is let in", Pkg: nodePkg, Test: "^TestWhoHasGoneBack$",
		File: "kvnode/setback.go",
		Old:  "\tif h.Log.Term < term || h.Log.Last < index {\n",
		New:  "\tif h.Log.Last < index {\n",
	},
	{
		Rule: "set back", Name: "what a later leader has cut off is held against a member", Pkg: nodePkg, Test: "^TestWhoHasGoneBack$",
		File: "kvnode/setback.go",
		Old:  "match > 0 && h.Log.Term <= s.GetTerm() {\n",
		New:  "match > 0 {\n",
	},
	{
		Rule: "set back", Name: "a process is judged each time it connects", Pkg: nodePkg, Test: "^TestWhoConnectsAnewHasNotGoneBack$",
		File: "kvnode/setback.go",
		Old:  "\tif slices.Contains(e.admitted, h.Log.Boot) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "set back", Name: "many copies make a peer forget whom it has let in", Pkg: nodePkg, Test: "^TestCopiesDoNotEndTheMember$",
		File: "kvnode/setback.go",
		Old:  "\t\te.admitted = slices.Delete(e.admitted, 0, 1)\n",
		New:  "\t\te.admitted = nil\n",
	},
	{
		Rule: "set back", Name: "a process that runs on is forgotten before those that have ended", Pkg: nodePkg, Test: "^TestCopiesDoNotEndTheMember$",
		File: "kvnode/setback.go",
		Old:  "\t\te.admit(h.Log.Boot)\n\t\treturn nil\n",
		New:  "\t\treturn nil\n",
	},
	{
		Rule: "set back", Name: "the name of a process may be of any length", Pkg: transportPkg, Test: "^TestHellosRefusedWithoutAsking$",
		File: "kvnode/transport/handler.go",
		Old:  "\tmaxBoot     = 64\n",
		New:  "\tmaxBoot     = 64 << 10\n",
	},
	{
		Rule: "set back", Name: "the leader does not look at what was acknowledged", Pkg: nodePkg, Test: "^TestWhoHasGoneBack$",
		File: "kvnode/setback.go",
		Old:  "s.RaftState == raft.StateLeader {\n",
		New:  "s.RaftState == raft.StateCandidate {\n",
	},
	{
		Rule: "set back", Name: "a refused vote counts as a vote", Pkg: nodePkg, Test: "^TestAnswersToCandidatesAreEvidence$",
		File: "kvnode/setback.go",
		Old:  "m.GetType() == raftpb.MsgVoteResp && !m.GetReject() {\n",
		New:  "m.GetType() == raftpb.MsgVoteResp {\n",
	},
	{
		Rule: "set back", Name: "what was dropped is logged each time", Pkg: nodePkg, Test: "^TestDroppedMessagesAreSaidOnce$",
		File: "kvnode/setback.go",
		Old:  "\tcase n.quiet.dropped.loud(m.GetFrom()):\n",
		New:  "\tdefault:\n",
	},
	{
		Rule: "set back", Name: "an answer to a former process is an error", Pkg: nodePkg, Test: "^TestDroppedMessagesAreSaidOnce$",
		File: "kvnode/setback.go",
		Old:  "\tcase m.GetTerm() < n.Term():\n",
		New:  "\tcase m.GetTerm() == 0:\n",
	},
	{
		Rule: "copies", Name: "two processes of one member are not named", Pkg: transportPkg, Test: "^TestTwoProcessesOfOneMemberAreNamed$",
		File: "kvnode/transport/double.go",
		Old:  "\t\tp.returns++\n",
		New:  "",
	},
	{
		Rule: "copies", Name: "a process that replaces another is one too many", Pkg: transportPkg, Test: "^TestTwoProcessesOfOneMemberAreNamed$",
		File: "kvnode/transport/double.go",
		Old:  "\tif at >= 0 {\n\t\tp.returns++\n",
		New:  "\tp.returns++\n\tif at >= 0 {\n",
	},
	{
		Rule: "copies", Name: "a link that flaps fills the log", Pkg: transportPkg, Test: "^TestALinkThatFlapsDoesNotFillTheLog$",
		File: "kvnode/transport/counts.go",
		Old:  "rate.Sometimes{First: 10, Interval: 10 * time.Second}",
		New:  "rate.Sometimes{Every: 1, Interval: 10 * time.Second}",
	},
	{
		Rule: "moved", Name: "a member that has moved is not named", Pkg: nodePkg, Test: "^TestAMovedMemberIsNamed$",
		File: "kvnode/moved.go",
		Old:  "\tif m.ID == 0 || ",
		New:  "\tif m.ID != 0 || ",
	},
	{
		Rule: "moved", Name: "the registry of a log that is not applied counts", Pkg: nodePkg, Test: "^TestAMemberThatHasMovedIsNotNamedByAnOldRegistry$",
		File: "kvnode/moved.go",
		Old:  " || !n.replay.isOver() || ",
		New:  " || ",
	},
}
