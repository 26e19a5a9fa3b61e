package main

const resignFile = "leaderlease/release.go"

// releasesAndCloses is how resigning gives the lease up.
const releasesAndCloses = "\tl.releaseLocked(m, now)\n\treturn m, l.closeLocked(now) // published before m is returned (L7)\n"

// resignRules take L6b out, or a part of it.
var resignRules = []Mutant{
	{
		Rule: "L6b", Name: "a resignation leaves before it is published", Pkg: rulesPkg, Test: "^TestL6ResignationIsPublishedBeforeItLeaves$",
		File: resignFile, Sim: true, Trace: true,
		Old: releasesAndCloses, New: "\tl.releaseLocked(m, now)\n\tl.mu.closed = true\n\tl.mu.lease.Close()\n\treturn m, nil\n",
	},
	{
		Rule: "L6b", Name: "who resigns keeps its lease", Pkg: rulesPkg, Test: "^TestL6ResignationHandsThePromisesBack$",
		File: resignFile, Sim: true,
		Old: releasesAndCloses, New: "\tattachRelease(m, core.Release{Term: term, At: now})\n\treturn m, nil\n",
	},
	{
		Rule: "L6b", Name: "who has resigned leads on", Pkg: rulesPkg, Test: "^TestL6AResignedMemberNeverServesAgain$",
		File: resignFile,
		Old:  "\treturn m, l.closeLocked(now) // published", New: "\treturn m, l.publishLocked(now) // published",
	},
	{
		Rule: "L6b", Name: "who does not lead resigns", Pkg: rulesPkg, Test: "^TestL6AFollowerCannotResign$",
		File: resignFile, Sim: true,
		Old: "\tif term == 0 {\n\t\treturn nil, nil\n\t}\n", New: "",
	},
	{
		Rule: "L6b", Name: "who has stepped down resigns for its node's term", Pkg: rulesPkg, Test: "^TestL6AFormerLeaderCannotResign$",
		File: resignFile, Sim: true,
		Old:  "\tterm := l.mu.lease.Term()\n",
		New:  "\tterm := l.mu.term\n",
		More: []Edit{{resignFile, "\tl.releaseLocked(m, now)\n", "\tl.mu.lease.Invalidate(now)\n\tattachRelease(m, core.Release{Term: term, At: now})\n"}},
	},
	{
		Rule: "L6b", Name: "a resignation names the newest term that the node knows", Pkg: libPkg, Test: "^TestResignNamesTheTermThatItLeads$",
		File: resignFile,
		Old:  "\tm := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(to)",
		New:  "\tterm = max(term, l.mu.guard.Info(now).Term)\n\tm := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(to)",
		More: []Edit{{resignFile, "\tl.releaseLocked(m, now)\n", "\tl.mu.lease.Invalidate(now)\n\tattachRelease(m, core.Release{Term: term, At: now})\n"}},
	},
	{
		Rule: "L6b", Name: "a resignation releases for ever", Pkg: rulesPkg, Test: "^TestL6ResignationIsPublishedBeforeItLeaves$",
		File: resignFile,
		Old:  "\tl.releaseLocked(m, now)\n", New: "\tl.mu.lease.Release(now)\n\tattachRelease(m, core.Release{Term: term, At: core.Forever})\n",
	},
}
