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
		Old:  "\tif _, err := n.Read(ctx, ReadLease); err != nil && !n.isStopping() {\n",
		New:  "\tif err := ctx.Err(); err != nil && !n.isStopping() {\n",
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
}
