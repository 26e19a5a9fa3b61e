package main

const (
	recoverFile = "leaderlease/recovercommit.go"
	hintFile    = "leaderlease/commithint.go"
)

// commitRules break how a node learns which configuration changes are committed: from its log
// at the start, and from answers to its candidacy.
var commitRules = []Mutant{
	{
		Rule: "storage", Name: "the commit index is taken as it is stored", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\tif commit > hard.GetCommit() {", New: "\tif commit > hard.GetCommit()+commit {",
	},
	{
		Rule: "storage", Name: "raft starts with the commit index as it is stored", Pkg: libPkg, Test: "^TestNewRawNodeRecoversTheCommitIndex$",
		File: "leaderlease/start.go",
		Old:  "\tnode, err := raft.NewRawNode(own)\n", New: "\town.Storage = raftConfig.Storage\n\tnode, err := raft.NewRawNode(own)\n",
	},
	{
		Rule: "storage", Name: "New takes any commit index", Pkg: libPkg, Test: "^TestNewRefusesACommitIndexBelowWhatTheLogProves$",
		File: "leaderlease/start.go",
		Old:  "if err := checkCommit(cfg.Raft.Storage, hard.GetCommit()); err != nil {", New: "if err := error(nil); err != nil {",
	},
	{
		Rule: "storage", Name: "the newest change is taken for committed", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\t\t\tproven = change\n", New: "\t\t\tproven = max(change, e.GetIndex())\n",
	},
	{
		Rule: "storage", Name: "changes of Bootstrap prove each other", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\t\tif e.GetTerm() == led {", New: "\t\tif e.GetTerm() >= led {",
	},
	{
		Rule: "storage", Name: "changes behind a snapshot prove nothing", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\tled := first > 1\n", New: "\tled := false\n",
	},
	{
		Rule: "storage", Name: "the way out of a joint configuration is no change", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: "leaderlease/conf.go",
		Old:  "\treturn e.GetType() == raftpb.EntryConfChange || e.GetType() == raftpb.EntryConfChangeV2\n",
		New:  "\treturn e.GetType() == raftpb.EntryConfChange || e.GetType() == raftpb.EntryConfChangeV2 && len(e.GetData()) > 0\n",
	},
	{
		Rule: "storage", Name: "only a page of the log is read", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\t\tlo += uint64(len(entries))\n", New: "\t\tlo = hi\n",
	},
	{
		Rule: "membership", Name: "answers to candidates do not say what is committed", Pkg: libPkg, Test: "^TestVoteAnswersSayWhatIsCommitted$",
		File: hintFile,
		Old:  "\t\tm.Commit, m.RejectHint = new(h.index), new(h.term)\n", New: "",
	},
	{
		Rule: "membership", Name: "a hint of another entry is taken", Pkg: libPkg, Test: "^TestLearnCommit$",
		File: hintFile,
		Old:  "err != nil || term != m.GetRejectHint() {", New: "err != nil || term == 0 {",
	},
	{
		Rule: "membership", Name: "a candidate gives up for a hint of any entry", Pkg: libPkg, Test: "^TestLearnCommit$",
		File: hintFile,
		Old:  "\tif err != nil || change == 0 {", New: "\tif err != nil {",
	},
	{
		Rule: "membership", Name: "the sender of a hint stays the leader", Pkg: libPkg, Test: "^TestLearnCommit$",
		File: hintFile,
		Old:  "\t\t_ = node.ForgetLeader()\n", New: "",
	},
	{
		Rule: "membership", Name: "a wrapped node does not learn", Pkg: libPkg, Test: "^TestAWrappedNodeLearnsWhatIsCommitted$",
		File: "leaderlease/wrap.go",
		Old:  "\t\tn.learnCommit(ctx, m)\n", New: "",
	},
}
