package main

const ttlPkg = "./kvnode/ttl"

// ttls are bugs of TTL leases: what counts as time, and what ends them.
var ttls = []Mutant{
	{
		Rule: "TTL", Name: "the queue is not in the order of the ends", Pkg: "./kvnode/ttl", Test: "^TestTheShortestEndsFirst$",
		File: "kvnode/ttl/reign.go",
		Old:  "		e.at = e.deadline\n		heap.Push(&r.due, e)\n", New: "		heap.Push(&r.due, e)\n		e.at = e.deadline\n",
	},
	{
		Rule: "TTL", Name: "what is left is read before the confirmation", Pkg: "./kvnode/ttl", Test: "^TestTimeLeftIsReadAfterTheConfirmation$",
		File: "kvnode/ttl/renew.go",
		Old:  "	if err := e.cfg.Member.Confirm(ctx, r.term); err != nil {\n		return Left{}, err\n	}\n	left := r.left(id)\n",
		New:  "	left := r.left(id)\n	if err := e.cfg.Member.Confirm(ctx, r.term); err != nil {\n		return Left{}, err\n	}\n",
	},
	{
		Rule: "time", Name: "time counts while nobody could have renewed", Pkg: ttlPkg, Test: "^TestOnlyServedTimeCounts$",
		File: "kvnode/ttl/reign.go",
		Old:  "\tcase holds && r.held && !first &&",
		New:  "\tcase !first &&",
	},
	{
		Rule: "time", Name: "a long pause counts", Pkg: ttlPkg, Test: "^TestOnlyServedTimeCounts$",
		File: "kvnode/ttl/reign.go",
		Old:  " && gap >= 0 && gap <= r.cfg.MaxGap:\n",
		New:  " && gap >= 0:\n",
	},
	{
		Rule: "time", Name: "no grace after an interruption", Pkg: ttlPkg, Test: "^TestGraceAfterAnInterruption$",
		File: "kvnode/ttl/reign.go",
		Old:  "\t\tr.mu.floor = r.mu.now + served(r.cfg.Grace)\n",
		New:  "\t\tr.mu.floor = r.mu.now\n",
	},
	{
		Rule: "time", Name: "each short interruption prolongs the grace", Pkg: ttlPkg, Test: "^TestAFlappingLeaderLeaseIsNoEternity$",
		File: "kvnode/ttl/reign.go",
		Old:  "\tcase holds && (now.Sub(r.heard) > r.cfg.MaxGap || r.mu.now >= r.mu.floor):\n",
		New:  "\tcase holds:\n",
	},
	{
		Rule: "time", Name: "no time passes where answers take longer than the lease", Pkg: ttlPkg, Test: "^TestTimeIsServedWithoutALeaderLease$",
		File: "kvnode/ttl/reign.go",
		Old:  "core.ClockFault, core.Expired, core.Margin:", New: "core.ClockFault:",
	},
	{
		Rule: "time", Name: "who renews while a tick waits is given less", Pkg: ttlPkg, Test: "^TestATickThatWaitsMakesNoTTLShorter$",
		File: "kvnode/ttl/reign.go",
		Old:  "0), 2*r.cfg.MaxGap)", New: "0), r.cfg.MaxGap)",
	},
	{
		Rule: "time", Name: "a new leader counts from the renewal that it has not seen", Pkg: nodePkg, Test: "^TestFailOverGivesTheFullTTL$",
		File: "kvnode/ttl/reign.go",
		Old:  "deadline: now.after(l.Left()),",
		New:  "deadline: now.after(l.Left()/2),",
	},
	{
		Rule: "time", Name: "a new leader does not look at what is there", Pkg: ttlPkg, Test: "^TestANewReignBeginsAnew$",
		File: "kvnode/ttl/engine.go",
		Old:  "\tr.adopt()\n",
		New:  "",
	},
	{
		Rule: "time", Name: "a leader that is stuck on its disk counts time", Pkg: nodePkg, Test: "^TestALeaderStuckOnItsDiskRevokesNothing$",
		File: "kvnode/ttl.go",
		Old:  "\tif m.node.disk.stuck.Load() {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "renew", Name: "a keep-alive is answered without knowing who leads", Pkg: ttlPkg, Test: "^TestAnswersAreConfirmed$",
		File: "kvnode/ttl/renew.go",
		Old:  "\t\tif err := e.cfg.Member.Confirm(ctx, r.term); err != nil {\n\t\t\treturn 0, err\n",
		New:  "\t\tif err := error(nil); err != nil {\n\t\t\treturn 0, err\n",
	},
	{
		Rule: "renew", Name: "what a new leader says confirms the old one", Pkg: nodePkg, Test: "^TestANewLeaderConfirmsNoOldOne$",
		File: "kvnode/ttl.go",
		Old:  "\tif r.Path == leaderlease.PathForwarded || r.Term != term {\n",
		New:  "\tif r.Term == 0 {\n",
	},
	{
		Rule: "renew", Name: "renewed while its end is being proposed", Pkg: ttlPkg, Test: "^TestNoRenewalOnceTheEndIsProposed$",
		File: "kvnode/ttl/renew.go",
		Old:  "\tif e.revoking != nil {\n\t\treturn renewal{",
		New:  "\tif false {\n\t\treturn renewal{",
	},
	{
		Rule: "renew", Name: "a renewal leaves in the log what was left before", Pkg: ttlPkg, Test: "^TestARenewalTakesACheckpointBack$",
		File: "kvnode/ttl/renew.go",
		Old:  "\tcase e.saved || l.Remaining > 0:",
		New:  "\tcase false:",
	},
	{
		Rule: "renew", Name: "a renewal does not wait for a checkpoint under way", Pkg: ttlPkg, Test: "^TestARenewalDuringACheckpoint$",
		File: "kvnode/ttl/renew.go",
		Old:  "\tcase e.saving != nil:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "revoke", Name: "a revocation is not bound to its term", Pkg: nodePkg, Test: "^TestFencedWorkDoesNotOutliveItsTerm$",
		File: "kvnode/ttl.go",
		Old:  "&store.Command{Fence: term, ",
		New:  "&store.Command{",
	},
	{
		Rule: "revoke", Name: "revoked although it is no longer known who leads", Pkg: ttlPkg, Test: "^TestWhatIsSparedMayLive$",
		File: "kvnode/ttl/revoke.go",
		Old:  "\t\tif r.holds() {\n",
		New:  "\t\tif true {\n",
	},
	{
		Rule: "revoke", Name: "a revocation in doubt is taken back", Pkg: ttlPkg, Test: "^TestARevocationInDoubtIsNotTakenBack$",
		File: "kvnode/ttl/revoke.go",
		Old:  "\t\t} else if !proposed {\n",
		New:  "\t\t} else if !proposed || true {\n",
	},
	{
		Rule: "revoke", Name: "a revocation that failed is not tried again", Pkg: ttlPkg, Test: "^TestAFailedRevocationIsTriedAgain$",
		File: "kvnode/ttl/revoke.go",
		Old:  "\treturn false\n",
		New:  "\treturn true\n",
	},
	{
		Rule: "revoke", Name: "keys are deleted in map order", Pkg: storePkg, Test: "^TestRevokeDeletesInOneRevision$",
		File: "kvnode/store/ttl.go",
		Old:  "\treturn slices.Sorted(maps.Keys(a.keys))\n",
		New:  "\treturn slices.Collect(maps.Keys(a.keys))\n",
	},
	{
		Rule: "attach", Name: "a key stays with the TTL lease of an older version", Pkg: storePkg, Test: "^TestKeysFollowTheirNewestVersion$",
		File: "kvnode/store/ttl.go",
		Old:  "\t\tdelete(a.keys, key)\n",
		New:  "",
	},
	{
		Rule: "attach", Name: "a key is put under a TTL lease that is not there", Pkg: storePkg, Test: "^TestKeysFollowTheirNewestVersion$",
		File: "kvnode/store/write.go",
		Old:  "\tcase r.GetLease() != 0 && !w.st.leases.has(r.GetLease()):\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "attach", Name: "what is left is not in the checkpoint", Pkg: storePkg, Test: "^TestTTLLeasesSurvive$",
		File: "kvnode/store/ttl.go",
		Old:  "\t\tst.leases.set(l)\n\t\tst.unsaved.setLease(l)\n",
		New:  "\t\tst.leases.set(l)\n",
	},
}
