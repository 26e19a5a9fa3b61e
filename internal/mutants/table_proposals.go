package main

const (
	forwardsFile = "kvnode/forwards.go"
	proposeFile  = "kvnode/propose.go"
	waitersFile  = "kvnode/waiters.go"
	commandFile  = "kvnode/store/command.go"
)

// proposals are bugs in what becomes of proposals that raft does not take at once.
var proposals = []Mutant{
	{
		Rule: "proposals", Name: "a leader drops what followers forward while too much is uncommitted", Pkg: nodePkg, Test: "^TestALeaderLosesNothingThatAFollowerForwards$",
		File: forwardsFile,
		Old:  "hasConfChange(m) || errors.Is(l.raw.Step(m), raft.ErrProposalDropped):\n",
		New:  "hasConfChange(m) || l.raw.Step(m) != nil && false:\n",
	},
	{
		Rule: "proposals", Name: "what is parked waits for a tick", Pkg: nodePkg, Test: "^TestALeaderLosesNothingThatAFollowerForwards$",
		File: "kvnode/loop.go",
		Old:  "\t\tl.offers.full = false // less is uncommitted, as raft counts it\n",
		New:  "",
	},
	{
		Rule: "proposals", Name: "whoever is first goes on", Pkg: nodePkg, Test: "^TestMembersTakeTurnsAtTheLeader$",
		File: forwardsFile,
		Old:  "\t\t\tpassed = 0\n\t\t\to.turns = append(o.turns, id)\n",
		New:  "\t\t\tpassed = 0\n\t\t\to.turns = append([]uint64{id}, o.turns...)\n",
	},
	{
		Rule: "proposals", Name: "who was deposed keeps what followers forwarded", Pkg: nodePkg, Test: "^TestAFollowersShareIsBounded$",
		File: forwardsFile,
		Old:  "\tif l.role != raft.StateLeader && o.lanes != nil {\n",
		New:  "\tif l.role != raft.StateLeader && o.lanes != nil && false {\n",
	},
	{
		Rule: "proposals", Name: "a follower's share has no bound", Pkg: nodePkg, Test: "^TestAFollowersShareIsBounded$",
		File: "kvnode/intake.go",
		Old:  "\tif s.count == 0 || s.count < maxShareCount && s.bytes+size <= in.maxBytes {\n",
		New:  "\tif true {\n",
	},
	{
		Rule: "proposals", Name: "whoever waits for a share is not woken", Pkg: nodePkg, Test: "^TestAFollowersShareIsBounded$",
		File: "kvnode/intake.go",
		Old:  "\t\tclose(s.freed)\n",
		New:  "",
	},
	{
		Rule: "proposals", Name: "who waits for a leader of a former term waits for the same one of a later term", Pkg: nodePkg, Test: "^TestALeaderOfALaterTermIsAnotherOne$",
		File: "kvnode/failover.go",
		Old:  "\tif now == old || ",
		New:  "\tif lead == old.leader || ",
	},
	{
		Rule: "proposals", Name: "nobody is told that the same leader leads in a later term", Pkg: nodePkg, Test: "^TestALeaderOfALaterTermIsAnotherOne$",
		File: "kvnode/ready.go",
		Old:  "\tif lead != l.Leader() || lead != raft.None && l.Term() != was {\n",
		New:  "\tif _ = was; lead != l.Leader() {\n",
	},
	{
		Rule: "proposals", Name: "a follower sends to a leader that it is not connected to", Pkg: nodePkg, Test: "^TestAFollowerKeepsWhatItCannotSend$",
		File: forwardsFile,
		Old:  "lead != raft.None && !l.links.Takes(lead, m) {\n",
		New:  "lead != raft.None && !l.links.Takes(lead, m) && false {\n",
	},
	{
		Rule: "proposals", Name: "a change is offered while too much is uncommitted", Pkg: nodePkg, Test: "^TestAChangeBehindMuchThatIsUncommitted$",
		File: forwardsFile,
		Old:  "\t\tif l.raw.BasicStatus().Applied < l.last.Load() {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "proposals", Name: "what nobody waits for any more is kept", Pkg: nodePkg, Test: "^TestWhatNobodyWaitsForIsForgotten$",
		File: "kvnode/loop.go",
		Old:  "\tl.offers.own = l.proposals.waiters.awaited(l.offers.own)\n",
		New:  "",
	},
	{
		Rule: "proposals", Name: "what is overdue waits for the loop", Pkg: nodePkg, Test: "^TestWhatIsOverdueIsNotKept$",
		File: "kvnode/propose.go",
		Old:  "\t\tp.box.drop(func(o proposal) bool { return o.id == q.id })\n", New: "",
	},
}

// attempts are bugs in what becomes of proposals whose leader is replaced.
var attempts = []Mutant{
	{
		Rule: "attempts", Name: "an attempt has no fence", Pkg: nodePkg, Test: "^TestAPutThatIsPassedOnToTheNextLeader$",
		File: proposeFile,
		Old:  "\tif q.again {\n\t\tc.Fence = p.Term() // mostly that in which it is proposed (proposal.in)\n\t\tq.fence = c.Fence\n\t}\n\tdata, err := c.Encode()\n",
		New:  "\tdata, err := c.Encode()\n\tif q.again {\n\t\tc.Fence = p.Term()\n\t\tq.fence = c.Fence\n\t}\n",
	},
	{
		Rule: "attempts", Name: "a leader's own work is proposed again, where it is void", Pkg: nodePkg, Test: "^TestWhatALeaderProposesForItsTermEndsWithIt$",
		File: proposeFile,
		Old:  "\t\tq.fence = c.Fence\n\t}\n",
		New:  "\t}\n\tq.fence = c.Fence\n",
	},
	{
		Rule: "attempts", Name: "an attempt has no fence, and leaders come and go", Pkg: nodePkg, Test: "^TestLeadersComeAndGo$",
		File: proposeFile,
		Old:  "\t\tc.Fence = p.Term() // mostly that in which it is proposed (proposal.in)\n\t\tq.fence = c.Fence\n",
		New:  "\t\tq.fence = p.Term()\n",
	},
	{
		Rule: "attempts", Name: "the next attempt has the fence of the first", Pkg: nodePkg, Test: "^TestAPutThatReachesALeaderWhichHandsOver$",
		File: proposeFile,
		Old:  "\tif q.again && q.fence != term {\n",
		New:  "\tif q.again && q.fence == 0 {\n",
	},
	{
		Rule: "attempts", Name: "the next attempt changes the entry of the first", Pkg: nodePkg, Test: "^TestAnAttemptHasAnEntryOfItsOwn$",
		File: proposeFile,
		Old:  "q.entry, q.fence = &raftpb.Entry{Data: store.Refence(q.entry.GetData(), term)}, term\n",
		New:  "q.entry.Data, q.fence = store.Refence(q.entry.GetData(), term), term\n",
	},
	{
		Rule: "attempts", Name: "a new term proposes nothing again", Pkg: nodePkg, Test: "^TestAPutThatReachesALeaderWhichHandsOver$",
		File: "kvnode/apply.go",
		Old:  "func (a *applier) applyEntry(e *raftpb.Entry) bool {\n\ta.reach(e.GetTerm())\n",
		New:  "func (a *applier) applyEntry(e *raftpb.Entry) bool {\n",
	},
	{
		Rule: "attempts", Name: "what is void is counted, and not proposed", Pkg: nodePkg, Test: "^TestAPutThatIsPassedOnToTheNextLeader$",
		File: proposeFile,
		Old:  "\t\tp.box.put(void...)\n",
		New:  "",
	},
	{
		Rule: "attempts", Name: "the end of a reign fails all that its leader was handed", Pkg: nodePkg, Test: "^TestAPutThatTheNextLeaderCommits$",
		File: "kvnode/failover.go",
		Old:  "\t\tl.proposals.waiters.failUnfenced(ErrLeaderChanged)\n",
		New:  "\t\tl.proposals.waiters.failProposed(ErrLeaderChanged)\n",
	},
	{
		Rule: "attempts", Name: "who leads no more, without a quorum, lets its clients wait", Pkg: nodePkg, Test: "^TestWithoutAQuorum$",
		File: "kvnode/failover.go",
		Old:  "\tcase now.term == old.term, ",
		New:  "\tcase ",
	},
	{
		Rule: "attempts", Name: "who cannot write waits for what the next leader commits", Pkg: nodePkg, Test: "^TestAPutAtALeaderWhoseDiskIsFull$",
		File: "kvnode/failover.go",
		Old:  "\tcase now.term == old.term, l.appends.disk.unusable():",
		New:  "\tcase now.term == old.term:",
	},
	{
		Rule: "attempts", Name: "what has no fence waits for the next term", Pkg: nodePkg, Test: "^TestATermFailsWhatHasNoFence$",
		File: waitersFile,
		Old:  "return p.proposed && p.fence == 0 })",
		New:  "return false })",
	},
	{
		Rule: "attempts", Name: "what is of this term is proposed again in it", Pkg: nodePkg, Test: "^TestWhatIsVoidIsProposedAgain$",
		File: waitersFile,
		Old:  "p.fence == 0 || p.fence >= term:\n",
		New:  "p.fence == 0 || p.fence > term:\n",
	},
	{
		Rule: "attempts", Name: "what nobody has taken is proposed twice", Pkg: nodePkg, Test: "^TestWhatIsVoidIsProposedAgain$",
		File: waitersFile,
		Old:  "\t\tcase !p.proposed || p.fence == 0",
		New:  "\t\tcase p.fence == 0",
	},
	{
		Rule: "attempts", Name: "what is void is proposed again for as long as nothing has come of it", Pkg: nodePkg, Test: "^TestWhatIsVoidIsProposedAgain$",
		File: waitersFile,
		Old:  "\t\t\tp.proposed = false\n\t\t\tagain",
		New:  "\t\t\tagain",
	},
	{
		Rule: "attempts", Name: "an attempt that was void ends the wait for the next", Pkg: nodePkg, Test: "^TestWhatIsVoidIsProposedAgain$",
		File: waitersFile,
		Old:  "\treturn p != nil && p.proposal.again\n",
		New:  "\treturn p != nil && false\n",
	},
	{
		Rule: "attempts", Name: "a leader's own work that is void waits for another attempt", Pkg: nodePkg, Test: "^TestAFenceThatIsNotOursIsAnOutcome$",
		File: waitersFile,
		Old:  "\treturn p != nil && p.proposal.again\n",
		New:  "\treturn p != nil\n",
	},
	{
		Rule: "attempts", Name: "what a snapshot may hold is proposed again", Pkg: nodePkg, Test: "^TestAPutThatASnapshotMayHold$",
		File: "kvnode/apply.go",
		Old:  "\ta.proposals.waiters.skip()\n",
		New:  "",
	},
	{
		Rule: "attempts", Name: "a snapshot of a later term is not its beginning", Pkg: nodePkg, Test: "^TestAPutThatASnapshotMayHold$",
		File: "kvnode/apply.go",
		Old:  "\ta.reach(snap.GetMetadata().GetTerm())\n",
		New:  "",
	},
	{
		Rule: "attempts", Name: "an attempt is in doubt by a snapshot before it", Pkg: nodePkg, Test: "^TestWhatASnapshotMayHoldIsInDoubt$",
		File: waitersFile,
		Old:  "q.proposed, q.fence, q.skipped = true, p.fence, false\n",
		New:  "q.proposed, q.fence = true, p.fence\n",
	},
	{
		Rule: "attempts", Name: "what ends a TTL lease has a fence", Pkg: storePkg, Test: "^TestWhatEndsATTLLeaseMayNotHaveAFence$",
		File: commandFile,
		Old:  "c.Fence == 0 && c.Request.GetLeaseRevoke() == nil && ",
		New:  "c.Fence == 0 && ",
	},
	{
		Rule: "attempts", Name: "another fence is written into the entry that has one", Pkg: storePkg, Test: "^FuzzRefenceChangesTheFenceAlone$",
		File: commandFile,
		Old:  "\tto := make([]byte, head, len(data)+binary.MaxVarintLen64)\n\tcopy(to, data)\n",
		New:  "\tto := data[:head]\n",
	},
}

// changes are bugs in what becomes of configuration changes that nobody makes.
var changes = []Mutant{
	{
		Rule: "changes", Name: "malformed changes are taken from peers", Pkg: nodePkg, Test: "^TestMalformedChangesAreNotTakenFromPeers$",
		File: forwardsFile,
		Old:  "\terr := checkForwarded(m)\n",
		New:  "\terr := error(nil)\n",
	},
	{
		Rule: "changes", Name: "a malformed change in the log ends the member", Pkg: nodePkg, Test: "^TestMalformedChangesInTheLogAreOfNobody$",
		File: "kvnode/change.go",
		Old:  "\t\tplan.refusal = err\n",
		New:  "\t\tplan.stop = err\n",
	},
	{
		Rule: "changes", Name: "a change that is refused is registered", Pkg: nodePkg, Test: "^TestARefusedChangeRegistersNobody$",
		File: "kvnode/change.go",
		Old:  "\t\tplan.registry = nil\n",
		New:  "",
	},
	{
		Rule: "changes", Name: "a promotion is of any type", Pkg: nodePkg, Test: "^TestMalformedChangesInTheLogAreOfNobody$",
		File: "kvnode/change.go",
		Old:  ", ctx.Promote && cc.GetType() != raftpb.ConfChangeAddNode:\n",
		New:  ":\n",
	},
	{
		Rule: "changes", Name: "a change of an unknown type is made", Pkg: nodePkg, Test: "^FuzzHostileEntriesAreAppliedAlike$",
		File: "kvnode/change.go",
		Old:  "\tcase !slices.Contains(changeTypes, cc.GetType()), ctx",
		New:  "\tcase ctx",
	},
	{
		Rule: "changes", Name: "a member's change raises the format", Pkg: nodePkg, Test: "^TestMalformedChangesInTheLogAreOfNobody$",
		File: "kvnode/change.go",
		Old:  ", !raises && ctx.Format != 0:\n",
		New:  ":\n",
	},
	{
		Rule: "changes", Name: "changes of nobody succeed", Pkg: nodePkg, Test: "^TestJoiningIsRefused$",
		File: "kvnode/change.go",
		Old:  "\tcase c.Member.ID == raft.None || members",
		New:  "\tcase c.Member.ID == raft.None:\n\t\treturn nil, nil\n\tcase members",
	},
	{
		Rule: "changes", Name: "a learner is no voter to be", Pkg: nodePkg, Test: "^TestStrictReconfiguration$",
		File: "kvnode/membership.go",
		Old:  "\tadds := learner || typ",
		New:  "\tadds := typ",
	},
	{
		Rule: "changes", Name: "a quorum that has never started is one", Pkg: nodePkg, Test: "^TestAVoterThatHasNotStartedIsNotUp$",
		File: "kvnode/membership.go",
		Old:  "\tif started < quorum && !learner {\n",
		New:  "\tif false {\n",
	},
}
