package main

// transfers are bugs of who takes over, of when a member is ready, and of what is said
// about a disk without room.
var transfers = []Mutant{
	{
		Rule: "handover", Name: "a member in its restart hold is asked to lead", Pkg: nodePkg, Test: "^TestAStoppingLeaderPassesOverAMemberThatIsHeld$",
		File: "kvnode/transfer.go",
		Old:  "\t\th.held = stillHeld(peers[at].Hello.Hold, time.Since(peers[at].Since), most)\n",
		New:  "\t\t_ = most\n",
	},
	{
		Rule: "handover", Name: "members do not say that they are held", Pkg: nodePkg, Test: "^TestAStoppingLeaderWaitsForAHeldMember$",
		File: "kvnode/transport/dial.go",
		Old:  "h.To, h.Hold, h.Process = to, t.cfg.Hold(), 0", New: "h.To, h.Process = to, 0",
	},
	{
		Rule: "handover", Name: "whoever is held is not waited for", Pkg: nodePkg, Test: "^TestAStoppingLeaderWaitsForAHeldMember$",
		File: "kvnode/transfer.go",
		Old:  "\t\treturn raft.None, best.held\n", New: "\t\treturn raft.None, 0\n",
	},
	{
		Rule: "handover", Name: "nobody else is asked", Pkg: nodePkg, Test: "^TestAStoppingLeaderTriesTheNext$",
		File: "kvnode/transfer.go",
		Old:  "\t\t\ttries[id]++\n", New: "",
	},
	{
		Rule: "handover", Name: "the next is asked after an election timeout", Pkg: nodePkg, Test: "^TestAStoppingLeaderTriesTheNext$",
		File: "kvnode/transfer.go",
		Old:  "\t\t\twait = max(heirTime, heirTicks*t.cfg.TickInterval)\n", New: "\t\t\twait = t.cfg.ElectionTimeout\n",
	},
	{
		Rule: "handover", Name: "a transfer that failed stays", Pkg: nodePkg, Test: "^TestATransferThatFailsIsCalledOff$",
		File: "kvnode/transfer.go",
		Old:  "t.askToLead(t.ID()) // which calls it off", New: "_ = t.ID()",
	},
	{
		Rule: "handover", Name: "the only heir is not asked again", Pkg: nodePkg, Test: "^TestTheOnlyHeirIsAskedAgain$",
		File: "kvnode/transfer.go",
		Old:  "if l.raw.BasicStatus().LeadTransferee == to {", New: "if false {",
	},
	{
		Rule: "handover", Name: "a hold lasts as long as a member says", Pkg: nodePkg, Test: "^TestStillHeld$",
		File: "kvnode/transfer.go",
		Old:  "min(max(said, 0), most)-ago", New: "said-ago",
	},
	{
		Rule: "handover", Name: "a transfer to nobody succeeds", Pkg: nodePkg, Test: "^TestWhoIsNoVoterCannotLead$",
		File: "kvnode/transfer.go",
		Old:  "case wait == 0 && only != raft.None:", New: "case false:",
	},
	{
		Rule: "handover", Name: "who has least of the log is asked first", Pkg: nodePkg, Test: "^TestChooseHeir$",
		File: "kvnode/transfer.go",
		Old:  "cmp.Compare(b.match, a.match)", New: "cmp.Compare(a.match, b.match)",
	},
	{
		Rule: "handover", Name: "a named successor that is held is asked at once", Pkg: nodePkg, Test: "^TestMoveLeaderWaitsForAHeldMember$",
		File: "kvnode/transfer.go",
		Old:  "\tif best.held > 0 {\n", New: "\tif best.held > 0 && len(heirs) > 1 {\n",
	},
	{
		Rule: "readiness", Name: "a member that cannot vote is ready", Pkg: apiPkg, Test: "^TestReadinessSaysWhatIsMissing$",
		File: "kvnode/etcdapi/probes.go",
		Old:  "hold > 0 &&", New: "hold < 0 &&",
	},
	{
		Rule: "readiness", Name: "a leader is not ready after a step of its clock", Pkg: apiPkg, Test: "^TestALeaderInAHoldIsReady$",
		File: "kvnode/etcdapi/probes.go",
		Old:  "hold > 0 && s.Leader != s.ID {", New: "hold > 0 {",
	},
	{
		Rule: "readiness", Name: "a member that cannot make checkpoints is ready", Pkg: apiPkg, Test: "^TestReadinessSaysWhatIsMissing$",
		File: "kvnode/etcdapi/probes.go",
		Old:  "\tcase s.CheckpointErr != nil:\n", New: "\tcase false:\n",
	},
	{
		Rule: "readiness", Name: "kvnode_ready stays once it was", Pkg: "./kvnode/server", Test: "^TestMetricsOfReadinessAndAlarms$",
		File: "kvnode/server/ready.go",
		Old:  "return s.api.Readiness(ctx) == nil", New: "return ctx.Err() == nil",
	},
	{
		Rule: "readiness", Name: "alarms of others are not counted", Pkg: "./kvnode/server", Test: "^TestMetricsOfReadinessAndAlarms$",
		File: "kvnode/server/metrics.go",
		Old:  "if m.GetAlarm() == t {", New: "if m.GetAlarm() == t && m.GetMemberID() == r.ID {",
	},
	{
		Rule: "readiness", Name: "nobody says that an alarm is raised", Pkg: nodePkg, Test: "^TestAlarmsAreSaid$",
		File: "kvnode/apply.go",
		Old:  "\t\ta.sayAlarms(before)\n", New: "\t\t_ = before\n",
	},
	{
		Rule: "readiness", Name: "a member that starts does not say which alarms stand", Pkg: nodePkg, Test: "^TestAlarmsAreSaid$",
		File: "kvnode/start.go",
		Old:  "\tn.sayAlarms(nil)\n", New: "",
	},
	{
		Rule: "full disk", Name: "a full log keeps what followers may want", Pkg: nodePkg, Test: "^TestAFullDiskIsFreedOfWhatFollowersMayWant$",
		File: "kvnode/checkpoint.go",
		Old:  "err = c.shorten(at, c.disk.full.Load())", New: "err = c.shorten(at, false)",
	},
	{
		Rule: "full disk", Name: "a live follower is left to a snapshot", Pkg: nodePkg, Test: "^TestAFullDiskLeavesWhatALiveFollowerLacks$",
		File: "kvnode/checkpoint.go",
		Old:  "\treturn min(limit, max(frees, c.followedUpTo()))\n", New: "\treturn limit\n",
	},
	{
		Rule: "full disk", Name: "nothing is freed that a live follower lacks", Pkg: nodePkg, Test: "^TestAFullDiskLeavesWhatALiveFollowerLacks$",
		File: "kvnode/checkpoint.go",
		Old:  "max(frees, c.followedUpTo())", New: "c.followedUpTo()",
	},
	{
		Rule: "full disk", Name: "the log forgets what follows a snapshot on its way", Pkg: nodePkg, Test: "^TestTheLogOutlastsASnapshotOnItsWay$",
		File: "kvnode/checkpoint.go",
		Old:  "\tto := c.needed(at.Index - min(at.Index, c.cfg.CatchUpEntries))\n", New: "\tto := at.Index - min(at.Index, c.cfg.CatchUpEntries)\n",
	},
	{
		Rule: "full disk", Name: "the log forgets what follows a snapshot that is restored", Pkg: nodePkg, Test: "^TestTheLogOutlastsASnapshotOnItsWay$",
		File: "kvnode/laggards.go",
		Old:  "\t\t\thas = pr.Next - 1 ", New: "\t\t\t",
	},
	{
		Rule: "full disk", Name: "the log forgets what was written while a snapshot was on its way", Pkg: nodePkg, Test: "^TestTheLogOutlastsASnapshotOnItsWay$",
		File: "kvnode/laggards.go",
		Old:  "case pr.State == tracker.StateReplicate && has >= to, ", New: "case pr.State == tracker.StateReplicate, ",
	},
	{
		Rule: "full disk", Name: "the log is kept for a laggard without end", Pkg: nodePkg, Test: "^TestTheLogIsNotKeptForever$",
		File: "kvnode/laggards.go",
		Old:  "written-since > most:", New: "written-since > most<<20:",
	},
	{
		Rule: "full disk", Name: "the log is given up although that frees no segment", Pkg: nodePkg, Test: "^TestAFullDiskKeepsWhatFreesNothing$",
		File: "kvnode/checkpoint.go",
		Old:  "\tif !ok || frees > limit {\n\t\treturn 0\n", New: "\tif !ok || frees > limit {\n\t\treturn limit\n",
	},
	{
		Rule: "full disk", Name: "a snapshot without room is tried again at once", Pkg: nodePkg, Test: "^TestASnapshotWithoutRoomRests$",
		File: "kvnode/received.go",
		Old:  "\t\tr.noRoomSince = time.Now()\n", New: "",
	},
	{
		Rule: "full disk", Name: "who steps aside asks without rest", Pkg: nodePkg, Test: "^TestWhoStepsAsideRestsBetweenRounds$",
		File: "kvnode/transfer.go",
		Old:  "t.sleep(t.cfg.ElectionTimeout + t.cfg.TickInterval)", New: "t.sleep(0)",
	},
	{
		Rule: "full disk", Name: "nothing is freed unless a checkpoint finds room", Pkg: nodePkg, Test: "^TestAFullDiskIsFreedOfWhatFollowersMayWant$",
		File: "kvnode/checkpoint.go",
		Old:  "\tif noRoom(err) {\n\t\t// What", New: "\tif false {\n\t\t// What",
	},
	{
		Rule: "full disk", Name: "a checkpoint without room keeps a defragmentation away", Pkg: apiPkg, Test: "^TestDefragmentMakesRoomForACheckpoint$",
		File: "kvnode/etcdapi/maintenance.go",
		Old:  "if saved != nil && !errors.Is(saved, kvnode.ErrDiskFull) {", New: "if saved != nil {",
	},
	{
		Rule: "full disk", Name: "a defragmentation trips over what another has left", Pkg: storePkg, Test: "^TestDefragmentLeavesNothingBehind$",
		File: "kvnode/store/boltdb/image.go",
		Old:  "if err := os.Remove(part); err != nil &&", New: "if err := error(nil); err != nil &&",
	},
	{
		Rule: "full disk", Name: "a defragmentation that failed keeps its file", Pkg: storePkg, Test: "^TestDefragmentLeavesNothingBehind$",
		File: "kvnode/store/boltdb/image.go",
		Old:  "\tdefer func() { _ = os.Remove(part) }() // gone if it was renamed\n", New: "",
	},
	{
		Rule: "membership", Name: "a peers.json that is gone is not made again", Pkg: nodePkg, Test: "^TestALostListOfAcquaintancesIsSaid$",
		File: "kvnode/start.go",
		Old:  "errors.Join(n.reconcile(), n.met.recall(&n.book, n.log))", New: "n.reconcile()",
	},
	{
		Rule: "membership", Name: "what a leader never sent is acknowledged", Pkg: nodePkg, Test: "^TestAnswersToThePastAreNoErrors$",
		File: "kvnode/setback.go",
		Old:  "s.RaftState != raft.StateLeader || s.GetTerm() != m.GetTerm()", New: "s.RaftState != raft.StateLeader || s.GetTerm() > 0",
	},
	{
		Rule: "membership", Name: "answers of another term are refused", Pkg: nodePkg, Test: "^TestAnswersToThePastAreNoErrors$",
		File: "kvnode/setback.go",
		Old:  "s.RaftState != raft.StateLeader || s.GetTerm() != m.GetTerm()", New: "s.RaftState != raft.StateLeader && s.GetTerm() == 0",
	},
	{
		Rule: "handover", Name: "there is no heir while raft counts anew who answers", Pkg: nodePkg, Test: "^TestAStoppingLeaderLooksAgain$",
		File: "kvnode/transfer.go",
		Old:  "len(heirs) == 0 || lookedAgain", New: "len(heirs) == 0 || !lookedAgain",
	},
}
