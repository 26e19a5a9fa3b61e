package main

const hashcheckPkg = "./kvnode/hashcheck"

// hashes are bugs of the comparison of members: sound ones that are said to be
// corrupt, and corrupt ones that nobody notices.
var hashes = []Mutant{
	{
		Rule: "hash", Name: "hashes after different compactions are compared", Pkg: hashcheckPkg, Test: "^Test(Judge|ACompactionBetween|MembersUnderLoad)",
		File: "kvnode/hashcheck/compare.go",
		Old:  "ha.HashRevision != hb.HashRevision || ha.CompactRevision != hb.CompactRevision",
		New:  "ha.HashRevision != hb.HashRevision",
	},
	{
		Rule: "hash", Name: "hashes of different revisions are compared", Pkg: hashcheckPkg, Test: "^TestJudge$",
		File: "kvnode/hashcheck/compare.go",
		Old:  "ha.HashRevision != hb.HashRevision || ha.CompactRevision",
		New:  "ha.CompactRevision",
	},
	{
		Rule: "hash", Name: "an older version's hash of an empty store counts", Pkg: hashcheckPkg, Test: "^TestJudge$",
		File: "kvnode/hashcheck/compare.go",
		Old:  "case ha.Hash == 0 || hb.Hash == 0:",
		New:  "case false:",
	},
	{
		Rule: "hash", Name: "a difference is believed at once", Pkg: hashcheckPkg, Test: "^TestJudge$",
		File: "kvnode/hashcheck/compare.go",
		Old:  "for range 2 { // a difference",
		New:  "for range 1 { // a difference",
	},
	{
		Rule: "hash", Name: "a member that is behind is not compared", Pkg: hashcheckPkg, Test: "^TestJudge$",
		File: "kvnode/hashcheck/compare.go",
		Old:  "\thb, err = b.hash(ctx, ha.HashRevision)\n\treturn ha, hb, err\n",
		New:  "\treturn ha, hb, ErrBehind\n",
	},
	{
		Rule: "hash", Name: "half of the members know who is corrupt", Pkg: hashcheckPkg, Test: "^TestJudge$",
		File: "kvnode/hashcheck/judge.go",
		Old:  "len(r.Camps[0]) > r.Members/2",
		New:  "len(r.Camps[0]) >= r.Members/2",
	},
	{
		Rule: "hash", Name: "the first member is right", Pkg: hashcheckPkg, Test: "^TestJudge$",
		File: "kvnode/hashcheck/judge.go",
		Old:  "\tslices.SortStableFunc(r.Camps, func(a, b []*Member) int { return len(b) - len(a) })\n",
		New:  "\tif len(r.Camps) > 1 {\n\t\tr.Camps = [][]*Member{slices.Concat(r.Camps[0], r.Camps[0]), slices.Concat(r.Camps[1:]...)}\n\t}\n",
	},
	{
		Rule: "hash", Name: "members are asked one after another", Pkg: hashcheckPkg, Test: "^TestASilentMemberHidesNobody$",
		File: "kvnode/hashcheck/judge.go",
		Old:  "\tanswered := make(chan int)\n\tfor i, m := range others {\n\t\tgo func() {",
		New:  "\tanswered := make(chan int, len(others))\n\tfor i, m := range others {\n\t\tfunc() {",
	},
	{
		Rule: "hash", Name: "all rounds share one deadline", Pkg: hashcheckPkg, Test: "^TestASilentMemberHidesNobody$",
		File: "kvnode/hashcheck/judge.go",
		Old:  "\tr := &Report{Members: len(members)}\n",
		New:  "\tctx, cancel := context.WithTimeout(ctx, l.Each)\n\tdefer cancel()\n\tr := &Report{Members: len(members)}\n",
	},
	{
		Rule: "hash", Name: "a start waits for who is silent though most agree", Pkg: hashcheckPkg, Test: "^TestASilentMemberHidesNobody$",
		File: "kvnode/hashcheck/judge.go",
		Old:  "agree++; agree == r.Members/2+1 {",
		New:  "agree++; false {",
	},
	{
		Rule: "hash", Name: "who had no time to answer is not asked again", Pkg: "./kvnode/server", Test: "^TestHowLongTheInitialCheckTakes$",
		File: "kvnode/hashcheck/judge.go",
		Old:  "status.Code(u.Err) == codes.DeadlineExceeded",
		New:  "status.Code(u.Err) == codes.DataLoss",
	},
	{
		Rule: "hash", Name: "a hash that takes longer than 2 s is not waited for", Pkg: "./kvnode/server", Test: "^TestHowLongTheInitialCheckTakes$",
		File: "kvnode/server/corruption.go",
		Old:  "max(askTime, time.Until(deadline))",
		New:  "min(askTime, time.Until(deadline))",
	},
	{
		Rule: "hash", Name: "the hash of whoever answers counts", Pkg: apiPkg, Test: "^TestWhoseHashItIs$",
		File: "kvnode/etcdapi/hashes.go",
		Old:  "id != m.ID {",
		New:  "id == 0 {",
	},
	{
		Rule: "hash", Name: "the hash of another cluster's member counts", Pkg: apiPkg, Test: "^TestWhoseHashItIs$",
		File: "kvnode/etcdapi/hashes.go",
		Old:  "slices.Concat(a.cfg.LeaderDial, sameCluster(a.node.ClusterID()).options())",
		New:  "a.cfg.LeaderDial",
	},
	{
		Rule: "hash", Name: "another cluster's errors are the leader's", Pkg: apiPkg, Test: "^TestAnotherClustersErrorsAreNotTheLeaders$",
		File: "kvnode/etcdapi/samecluster.go",
		Old:  "failed != nil {\n\t\treturn failed\n",
		New:  "failed != nil {\n\t\treturn err\n",
	},
	{
		Rule: "hash", Name: "a corrupt member serves", Pkg: "./kvnode/server", Test: "^TestInitialCorruptCheck$",
		File: "kvnode/server/corruption.go",
		Old:  "\t\ts.fail(err)\n\t\treturn false\n",
		New:  "\t\ts.log.Error(err.Error())\n",
	},
	{
		Rule: "hash", Name: "a sound member ends because another one is corrupt", Pkg: "./kvnode/server", Test: "^TestInitialCorruptCheck$",
		File: "kvnode/server/corruption.go",
		Old:  "return x.ID == self })",
		New:  "return x.ID == self && x == nil })",
	},
	{
		Rule: "hash", Name: "clients are served before the comparison", Pkg: "./kvnode/server", Test: "^TestAllStartAtOnceWithTheCheck$",
		File: "kvnode/server/shutter.go",
		Old:  "s.down.Load() && !keyless[method]",
		New:  "false",
	},
	{
		Rule: "hash", Name: "who compares is not answered by others that compare", Pkg: "./kvnode/server", Test: "^TestAllStartAtOnceWithTheCheck$",
		File: "kvnode/server/shutter.go",
		Old:  "\tpb.Maintenance_HashKV_FullMethodName:   true,\n",
		New:  "",
	},
	{
		Rule: "hash", Name: "TTL leases end because nobody can renew them while the leader compares", Pkg: "./kvnode/server", Test: "^TestAllStartAtOnceWithTheCheck$",
		File: "kvnode/server/shutter.go",
		Old:  "\tpb.Lease_LeaseKeepAlive_FullMethodName: true,\n",
		New:  "",
	},
	{
		Rule: "hash", Name: "a member that does not answer holds up the start", Pkg: "./kvnode/server", Test: "^TestHowLongTheInitialCheckTakes$",
		File: "kvnode/server/corruption.go",
		Old:  "len(report.Camps) == 1 && !report.Pending()",
		New:  "len(report.Camps) == 1 && len(report.Unknown) == 0",
	},
	{
		Rule: "hash", Name: "a member that is removed while it is compared raises the alarm", Pkg: "./kvnode/server", Test: "^TestAMemberRemovedMeanwhileRaisesNoAlarm$",
		File: "kvnode/server/corruption.go",
		Old:  "for m.removed(all) {",
		New:  "for false {",
	},
	{
		Rule: "hash", Name: "followers compare, too", Pkg: "./kvnode/server", Test: "^TestWhoComparesAndWhen$",
		File: "kvnode/server/corruption.go",
		Old:  "\t\tif m.leads() {\n",
		New:  "\t\t{\n",
	},
}
