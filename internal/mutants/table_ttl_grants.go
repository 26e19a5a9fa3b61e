package main

const (
	againTest = "^TestAnIDIsGrantedAgainInAllOrders$"
	mixedTest = "^TestAnIDIsGrantedAgainInAMixedCluster$"
	aloneTest = "^TestAnIDIsGrantedAgainWithoutLeaderLeases$"
	voidTest  = "^TestWhatTheRaiseMakesVoidIsProposedAnew$"
	keptTest  = "^TestWhatKeepsTheFormatIsSaid$"
	backTest  = "^TestCheckpointsAreTakenBackInAllOrders$"
)

// keepOld is the other half of adopting what is gone: a grant finds its ID in use.
var keepOld = []Edit{
	{
		File: "kvnode/ttl/reign.go",
		Old:  "\tif e := r.mu.leases[l.ID]; e != nil {\n",
		New:  "\tif e := r.mu.leases[l.ID]; e != nil && l.TTL == 0 {\n",
	},
	{
		File: "kvnode/ttl/reign.go",
		Old:  "\tif l.TTL != 0 {\n",
		New:  "\tif l.TTL != 0 && r.mu.leases[l.ID] == nil {\n",
	},
}

// ttlGrants are bugs of TTL leases whose ID is granted again, and of what a leader
// takes over from those before.
var ttlGrants = []Mutant{
	{
		Rule: "again", Name: "what was read without the lock is adopted, and a grant finds it", Pkg: ttlPkg, Test: mixedTest,
		File: "kvnode/ttl/reign.go",
		Old:  "\tl, ok := r.cfg.Store.TTLLease(id)\n",
		New:  "\tr.mu.Unlock()\n\tl, ok := r.cfg.Store.TTLLease(id)\n\tr.mu.Lock()\n",
		More: keepOld,
	},
	{
		Rule: "again", Name: "what was read without the lock is counted for ever", Pkg: ttlPkg, Test: againTest,
		File: "kvnode/ttl/reign.go",
		Old:  "\tl, ok := r.cfg.Store.TTLLease(id)\n",
		New:  "\tr.mu.Unlock()\n\tl, ok := r.cfg.Store.TTLLease(id)\n\tr.mu.Lock()\n",
	},
	{
		Rule: "again", Name: "a new reign adopts what was there when it looked, and a grant finds it", Pkg: ttlPkg, Test: mixedTest,
		File: "kvnode/ttl/reign.go",
		Old:  "\t\tr.seeLocked(l.ID) // it may be gone by now\n",
		New:  "\t\tif r.mu.leases[l.ID] == nil {\n\t\t\tr.adoptLocked(l)\n\t\t}\n",
		More: keepOld,
	},
	{
		Rule: "again", Name: "a new reign counts for ever what was there when it looked", Pkg: ttlPkg, Test: againTest,
		File: "kvnode/ttl/reign.go",
		Old:  "\t\tr.seeLocked(l.ID) // it may be gone by now\n",
		New:  "\t\tif r.mu.leases[l.ID] == nil {\n\t\t\tr.adoptLocked(l)\n\t\t}\n",
	},
	{
		Rule: "again", Name: "a grant does not replace what is counted",
		File: keepOld[0].File, Old: keepOld[0].Old, New: keepOld[0].New, More: keepOld[1:],
		Equivalent: "what is gone is dropped by its own event, and the store is read under the lock: a grant finds nothing. It is the second of two locks",
	},
	{
		Rule: "again", Name: "a revocation that failed is tried on whatever has the ID", Pkg: ttlPkg, Test: mixedTest,
		File: "kvnode/ttl/revoke.go",
		Old:  "\tfor proposed := false; r.counts(e); {\n",
		New:  "\tfor proposed := false; ; {\n",
		More: []Edit{{File: "kvnode/ttl/revoke.go", Old: "\tif !r.counts(e) {\n", New: "\tif false {\n"}},
	},
	{
		Rule: "again", Name: "what is gone once a revocation is confirmed is revoked", Pkg: ttlPkg, Test: "^TestWhatIsGrantedWhileARevocationIsConfirmed$",
		File: "kvnode/ttl/revoke.go",
		Old:  "\tif !r.counts(e) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "again", Name: "the format is read after the last look at whether an entry counts", Pkg: ttlPkg, Test: aloneTest,
		File: "kvnode/ttl/revoke.go",
		Old:  "\tvar grants []uint64\n",
		New:  "\tcounts := r.counts(e)\n\tvar grants []uint64\n",
		More: []Edit{{File: "kvnode/ttl/revoke.go", Old: "\tif !r.counts(e) {\n", New: "\tif !counts {\n"}},
	},
	{
		Rule: "again", Name: "checkpoints are written by ID", Pkg: ttlPkg, Test: "^TestNoCheckpointsInTheFirstFormat$",
		File: "kvnode/ttl/checkpoint.go",
		Old:  " || !r.names() {\n",
		New:  " {\n",
	},
	{
		Rule: "format", Name: "a keep-alive fails since the format is raised", Pkg: ttlPkg, Test: voidTest,
		File: "kvnode/ttl/checkpoint.go",
		Old:  "\tif errors.Is(res.Err, store.ErrNoGrant) && !named {\n",
		New:  "\tif errors.Is(res.Err, store.ErrNoGrant) && false {\n",
	},
	{
		Rule: "format", Name: "a revocation that the raise makes void waits", Pkg: ttlPkg, Test: voidTest,
		File: "kvnode/ttl/revoke.go",
		Old:  "\tcase errors.Is(res.Err, store.ErrNoGrant) && grants == nil:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "again", Name: "a revocation means whatever has the ID", Pkg: ttlPkg, Test: againTest,
		File: "kvnode/store/ttl.go",
		Old:  "!ok || !c.means(0, l) {\n",
		New:  "!ok || !c.means(0, l) && l.TTL == 0 {\n",
	},
	{
		Rule: "again", Name: "a checkpoint means whatever has the ID", Pkg: ttlPkg, Test: againTest,
		File: "kvnode/store/ttl.go",
		Old:  "!ok || !c.means(i, l) {\n",
		New:  "!ok || !c.means(i, l) && l.TTL == 0 {\n",
	},
	{
		Rule: "again", Name: "a leader that knows no grants revokes by ID in the new format", Pkg: storePkg, Test: "^TestARevocationNamesAGrant$",
		File: "kvnode/store/apply.go",
		Old:  "\tcase c.Fence != 0 && c.Grants == nil && ",
		New:  "\tcase false && ",
	},
	{
		Rule: "again", Name: "what a later leader has granted is renewed", Pkg: ttlPkg, Test: againTest,
		File: "kvnode/ttl/renew.go",
		Old:  "\t\tcase !r.lasts():\n\t\t\treturn 0, ErrNotLeader\n",
		New:  "\t\tcase false:\n\t\t\treturn 0, ErrNotLeader\n",
	},
	{
		Rule: "again", Name: "a keep-alive that has waited is not confirmed again", Pkg: ttlPkg, Test: "^TestAKeepAliveThatHasWaitedIsConfirmedAgain$",
		File: "kvnode/ttl/renew.go",
		Old:  "\tfor {\n\t\t// Each time: another may lead since, and have granted the ID again.\n\t\tif err := e.cfg.Member.Confirm(ctx, r.term); err != nil {\n\t\t\treturn 0, err\n\t\t}\n",
		New:  "\tif err := e.cfg.Member.Confirm(ctx, r.term); err != nil {\n\t\treturn 0, err\n\t}\n\tfor {\n",
	},
	{
		Rule: "again", Name: "a checkpoint ends for the TTL lease that has the ID since", Pkg: ttlPkg, Test: againTest,
		File: "kvnode/ttl/checkpoint.go",
		Old:  "\tif r.mu.leases[e.ID] != e {\n",
		New:  "\tif e = r.mu.leases[e.ID]; e == nil {\n",
	},
	{
		Rule: "saved", Name: "a new leader adopts before it has applied what was committed", Pkg: ttlPkg, Test: backTest,
		File: "kvnode/ttl/engine.go",
		Old:  "\tif !r.caughtUp() {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "saved", Name: "a keep-alive does not look at what a leader before has saved", Pkg: ttlPkg, Test: backTest,
		File: "kvnode/ttl/renew.go",
		Old:  "\tcase e.saved || l.Remaining > 0:",
		New:  "\tcase e.saved:",
	},
	{
		Rule: "saved", Name: "a checkpoint that failed is taken for none", Pkg: ttlPkg, Test: backTest,
		File: "kvnode/ttl/checkpoint.go",
		Old:  "r.savedAs(c.entry, true)",
		New:  "r.savedAs(c.entry, err == nil)",
		More: []Edit{{
			File: "kvnode/ttl/checkpoint.go",
			Old:  "\t\tif err := r.remember(batch); err != nil && r.ctx.Err() == nil {\n",
			New:  "\t\terr := r.remember(batch)\n\t\tif err != nil && r.ctx.Err() == nil {\n",
		}},
	},
	{
		Rule: "saved", Name: "a checkpoint counts as taken back although that failed", Pkg: ttlPkg, Test: backTest,
		File: "kvnode/ttl/checkpoint.go",
		Old:  "r.savedAs(e, err != nil)",
		New:  "r.savedAs(e, false)",
	},
	{
		Rule: "format", Name: "the format is raised while a member is old", Pkg: nodePkg, Test: "^TestTheFormatWaitsForTheLastOldMember$",
		File: "kvnode/format.go",
		Old:  "\t\tformat = min(format, knows)\n",
		New:  "",
	},
	{
		Rule: "format", Name: "a silent member keeps the format, and nobody says so", Pkg: nodePkg, Test: keptTest,
		File: "kvnode/format.go",
		Old:  "\t\tcase !ok:\n",
		New:  "\t\tcase !ok && knows > 0:\n",
	},
	{
		Rule: "format", Name: "followers do not say what keeps the format", Pkg: nodePkg, Test: keptTest,
		File: "kvnode/format.go",
		Old:  "\t\tformat, keptBy := f.common()\n",
		New:  "\t\tif f.LeadingTerm() == 0 {\n\t\t\tcontinue\n\t\t}\n\t\tformat, keptBy := f.common()\n",
	},
	{
		Rule: "format", Name: "what keeps the format is said once", Pkg: nodePkg, Test: keptTest,
		File: "kvnode/format.go",
		Old:  "since >= formatReminder || ",
		New:  "",
	},
	{
		Rule: "format", Name: "raft drops a follower's change that meets the raise", Pkg: nodePkg, Test: "^TestChangesThatMeetAllTakeEffect$",
		File: "kvnode/forwards.go",
		Old:  "\t\tif l.raw.BasicStatus().Applied < l.last.Load() {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "format", Name: "a member goes on in a format that it does not know", Pkg: nodePkg, Test: "^TestAnOldMemberStopsWhereTheFormatIsRaised$",
		File: "kvnode/change.go",
		Old:  "\t\tif ctx.Format > newestFormat {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "format", Name: "a peer of an older version is let in", Pkg: nodePkg, Test: "^TestAnOldMemberStopsWhereTheFormatIsRaised$",
		File: "kvnode/peers.go",
		Old:  "\tif err := knowsFormat(h, p.node.store.Format()); err != nil {\n",
		New:  "\tif err := error(nil); err != nil {\n",
	},
	{
		Rule: "format", Name: "a checkpoint does not say the format", Pkg: storePkg, Test: "^TestCheckpointsSayTheirFormat$",
		File: "kvnode/store/meta.go",
		Old:  "Format: st.format.Load(), ",
		New:  "Format: FormatFirst, ",
	},
	{
		Rule: "format", Name: "grants are numbered in the first format", Pkg: storePkg, Test: "^TestGrantsNeedTheirFormat$",
		File: "kvnode/store/ttl.go",
		Old:  "\tif st.format.Load() >= FormatGrants {\n",
		New:  "\tif true {\n",
	},
	{
		Rule: "format", Name: "grants are named in the first format", Pkg: storePkg, Test: "^TestGrantsNeedTheirFormat$",
		File: "kvnode/store/apply.go",
		Old:  "\tif err != nil || c.Grants != nil && st.format.Load() < FormatGrants {\n",
		New:  "\tif err != nil {\n",
	},
	{
		Rule: "format", Name: "the number of a grant is not in the checkpoint", Pkg: storePkg, Test: "^TestCheckpointsSayTheirFormat$",
		File: "kvnode/store/ttl_record.go",
		Old:  "\tif l.Grant != 0 {\n",
		New:  "\tif false {\n",
	},
}
