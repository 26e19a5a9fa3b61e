package main

// succession are bugs of those who are left when a leader is removed.
var succession = []Mutant{
	{
		Rule: "succession", Name: "nobody says to candidates what is committed", Pkg: nodePkg, Test: "^TestALeaderOfTwoThatRemovesItselfIsSucceeded$",
		File: "kvnode/candid.go",
		Old:  "\t\t\tm.Commit, m.RejectHint = new(index), new(term)\n",
		New:  "\t\t\t_ = index\n",
	},
	{
		Rule: "succession", Name: "candidates do not listen", Pkg: nodePkg, Test: "^TestALeaderOfTwoThatRemovesItselfIsSucceeded$",
		File: "kvnode/loop.go",
		Old:  "\tl.learnCommit(m)\n",
		New:  "",
	},
	{
		Rule: "succession", Name: "word of another entry is taken", Pkg: nodePkg, Test: "^TestWordOfAnotherEntryIsNotTaken$",
		File: "kvnode/candid.go",
		Old:  "err != nil || term != m.GetRejectHint() {\n",
		New:  "err != nil || term == 0 {\n",
	},
	{
		Rule: "succession", Name: "a candidate gives up for word of any entry", Pkg: nodePkg, Test: "^TestWordOfAnotherEntryIsNotTaken$",
		File: "kvnode/candid.go",
		Old:  "\tif firstChange(l.wal, s.GetCommit()+1, index+1) == 0 {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "succession", Name: "whoever told is taken for the leader", Pkg: nodePkg, Test: "^TestWordOfAnotherEntryIsNotTaken$",
		File: "kvnode/candid.go",
		Old:  "\t_ = l.raw.ForgetLeader()\n",
		New:  "",
	},
	{
		Rule: "succession", Name: "a removed member stops before the others know", Pkg: nodePkg, Test: "^TestOneOfThreeThatKnowsIsNotEnough$",
		File: "kvnode/leave.go",
		Old:  "return inEveryMajority(told, voters)",
		New:  "return told > 0 && voters > 0",
	},
	{
		Rule: "succession", Name: "one refusal stops a member that has not applied its removal", Pkg: nodePkg, Test: "^TestARemovedFollowerStaysWhileItsVoteIsNeeded$",
		File: "kvnode/leave.go",
		Old:  "\ttold, voters := 0, 0\n",
		New:  "\tif !f.store.Members().Removed[f.self] {\n\t\treturn len(f.mu.from) > 0\n\t}\n\ttold, voters := 0, 0\n",
	},
	{
		Rule: "succession", Name: "a removed member stops of itself", Pkg: nodePkg, Test: "^TestALeaderOfTwoThatRemovesItselfIsSucceeded$",
		File: "kvnode/apply.go",
		Old:  "\tif plan.removes(a.ID()) {\n",
		New:  "\tif plan.removes(a.ID()) {\n\t\ta.workers.Go((&farewells{parts: a.parts}).leave)\n",
		More: []Edit{{
			File: "kvnode/leave.go",
			Old:  "\tfor f.awaitRelease(context.Background()) == nil {\n",
			New:  "\tfor {\n",
		}, {
			File: "kvnode/leave.go",
			Old:  "\t\tif f.areEnough() { // it may have applied its removal meanwhile, and be needed\n",
			New:  "\t\t{\n",
		}},
	},
	{
		Rule: "succession", Name: "a member that was asked to remove itself answers at once", Pkg: nodePkg, Test: "^TestWhoIsLeftOfTwoNeedsNobody$",
		File: "kvnode/membership.go",
		Old:  "\t\terr = c.farewells.awaitRelease(ctx) // whoever knows does not hear this member\n",
		New:  "",
	},
	{
		Rule: "succession", Name: "one that knows is enough", Pkg: nodePkg, Test: "^TestWhoeverIsAskedToRemoveTheLeaderWaits$",
		File: "kvnode/membership.go",
		Old:  "return some > (voters-1)/2 }\n",
		New:  "return some > 0 }\n",
	},
	{
		Rule: "succession", Name: "a removal is answered by whoever knows first", Pkg: nodePkg, Test: "^TestWhoeverIsAskedToRemoveTheLeaderWaits$",
		File: "kvnode/membership.go",
		Old:  "\tcase !ok || self.Learner || !inEveryMajority(1, countVoters(members)):\n",
		New:  "\tcase !ok || self.Learner:\n",
	},
	{
		Rule: "succession", Name: "a removal is answered after half an election timeout", Pkg: nodePkg, Test: "^TestWhoeverIsAskedToRemoveTheLeaderWaits$",
		File: "kvnode/membership.go",
		Old:  "\tcase typ != raftpb.ConfChangeRemoveNode:\n",
		New:  "\tcase typ != raftpb.ConfChangeRemoveNode || id != c.ID():\n",
	},
}
