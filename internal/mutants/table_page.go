package main

const (
	leasepagePkg = "./kvnode/leasepage"
	// browserPkg looks at the page in a browser, chromium: without one its bugs survive.
	browserPkg = "./kvnode/e2e"

	pageTrack = "kvnode/leasepage/track.go"
	pageFlags = "kvnode/leasepage/flags.go"
	pageNotes = "kvnode/leasepage/notes.go"
	pageFeed  = "kvnode/leasepage/feed.go"
	pageLive  = "kvnode/leasepage/live.go"
	pageModel = "kvnode/leasepage/page/model.js"
)

// leasepages are bugs of the page of leases: of what it says, and of whom it serves.
var leasepages = []Mutant{
	// What counts as holding.
	{
		Rule: "lease page", Name: "reads in the margin are drawn as allowed", Pkg: leasepagePkg, Test: "^TestALeaseThatIsRenewedInItsMargin$",
		File: pageTrack,
		Old:  "\tcase t.last <= old.usable:\n", New: "\tcase t.last <= old.end:\n",
	},
	{
		Rule: "lease page", Name: "a lease that has run out goes on", Pkg: leasepagePkg, Test: "^TestALeaseThatIsRenewedInItsMargin$",
		File: pageTrack,
		Old:  "\t\tnext.from = max(next.from, old.end)\n\t\tt.leases = append(t.leases, next)\n", New: "\t\told.usable, old.end = next.usable, next.end\n",
	},
	{
		Rule: "lease page", Name: "a lease that was given up is drawn to its end", Pkg: leasepagePkg, Test: "^TestDraw$",
		File: pageTrack,
		Old:  "\t\tl.usable, l.end = min(l.usable, at), at\n", New: "",
	},
	{
		Rule: "lease page", Name: "a lease of the next term is the one before", Pkg: leasepagePkg, Test: "^TestANewTermIsANewLease$",
		File: pageTrack,
		Old:  " || t.lastLease().term != e.Term {", New: " {",
	},
	{
		Rule: "lease page", Name: "reads are drawn from where a round was sent", Pkg: leasepagePkg, Test: "^TestDraw$",
		File: pageTrack,
		Old:  "from: sent, known: t.last,", New: "from: sent, known: sent,",
	},
	{
		Rule: "lease page", Name: "a promise that was released is drawn to its end", Pkg: leasepagePkg, Test: "^TestDrawPromises$",
		File: pageTrack,
		Old:  "\t\tp.end = min(p.end, e.At)\n", New: "",
	},
	{
		Rule: "lease page", Name: "a lease that is handed over is drawn before the one that was given up", Pkg: leasepagePkg, Test: "^TestAHandOverIsDrawnInOrder$",
		File: "kvnode/leasepage/align.go",
		Old:  "\t\t\ton = d.usable\n", New: "",
	},
	{
		Rule: "lease page", Name: "the next lease is not known to follow", Pkg: leasepagePkg, Test: "^TestDraw$",
		File: pageFlags,
		Old:  "\t\tt.released = e.Number != 0\n", New: "",
	},
	{
		Rule: "lease page", Name: "a lease that is asked for counts as held", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "if (l.known - l.before <= t &&", New: "if (l.from - l.before <= t &&",
	},
	{
		Rule: "lease page", Name: "a lease in its margin counts as held", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "&& t < l.usable + l.after)", New: "&& t < l.end + l.after)",
	},
	{
		Rule: "lease page", Name: "a lease that nobody can place counts for certain", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "if (!lease.loose && ", New: "if (",
	},
	{
		Rule: "lease page", Name: "clocks are taken as if they agreed", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "lease.known + lease.before <= t && t < lease.usable - lease.after", New: "lease.known <= t && t < lease.usable",
	},
	{
		Rule: "lease page", Name: "the one before a release counts, too", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "if (model.proved || lease.released) break;", New: "if (model.proved) break;",
	},
	{
		Rule: "lease page", Name: "who is not heard holds no lease", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "most: most + (may.length ? 1 : 0)", New: "most",
	},
	{
		Rule: "lease page", Name: "who is not heard may always hold a lease", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "voters.length - free.length > voters.length / 2", New: "true",
	},
	{
		Rule: "lease page", Name: "a learner may hold a lease", Pkg: browserPkg, Test: "^TestLeasePageCountsWhatItCannotKnow$",
		File: pageModel,
		Old:  "return !lane.learner && voters", New: "return voters",
	},
	// What counts as not heard, lost, killed.
	{
		Rule: "lease page", Name: "who is paused is heard", Pkg: leasepagePkg, Test: "^TestARestartWithoutAnyLeader$",
		File: pageTrack,
		Old:  "\t\tt.mark(\"paused\", fmt.Sprintf(\"says nothing for %v, as one that is paused\", quiet.Round(time.Millisecond)))\n\t\tt.pauses = append(t.pauses, [2]core.Instant{t.last, at})\n",
		New:  "\t\tt.mark(\"paused\", fmt.Sprintf(\"says nothing for %v, as one that is paused\", quiet.Round(time.Millisecond)))\n",
	},
	{
		Rule: "lease page", Name: "who holds a lease may be silent for as long as a follower", Pkg: leasepagePkg, Test: "^TestFlags$",
		File: pageTrack,
		Old:  "\tif t.held {\n\t\tusual", New: "\tif false {\n\t\tusual",
	},
	{
		Rule: "lease page", Name: "a follower without a leader is paused", Pkg: leasepagePkg, Test: "^TestFlags$",
		File: pageTrack,
		Old:  "usual := 10 * t.p.Start.Duration", New: "usual := t.p.Start.Duration",
	},
	{
		Rule: "lease page", Name: "lost events are a pause", Pkg: leasepagePkg, Test: "^TestLostEventsAreNoPause$",
		File: pageTrack,
		Old:  "missing = missing || t.gaps[0] > t.last", New: "",
	},
	{
		Rule: "lease page", Name: "lost events are not told", Pkg: leasepagePkg, Test: "^TestLostEventsAreNoPause$",
		File: pageNotes,
		Old:  "events[i].Seq > due {", New: "false {",
	},
	{
		Rule: "lease page", Name: "what happened while a member was out of reach is not missed", Pkg: leasepagePkg, Test: "^TestWhoComesBackHasAGap$",
		File: pageLive,
		Old:  "if len(o.Events) > 0 && len(h.Events) > 0 {", New: "if false {",
	},
	{
		Rule: "lease page", Name: "who stops was killed", Pkg: leasepagePkg, Test: "^TestWhoIsKilled$",
		File: pageNotes,
		Old:  "\tt.left = t.left || n.Leaves\n", New: "",
	},
	{
		Rule: "lease page", Name: "who has resigned was killed", Pkg: leasepagePkg, Test: "^TestWhoIsKilled$",
		File: pageFlags,
		Old:  "case t.replaced && t.handed != 0 &&", New: "case false &&",
	},
	{
		Rule: "lease page", Name: "who has ever handed over is not killed", Pkg: leasepagePkg, Test: "^TestWhoIsKilled$",
		File: pageFlags,
		Old:  " && t.last.Sub(t.handed) <= parting:", New: ":",
	},
	{
		Rule: "lease page", Name: "who is killed stops", Pkg: leasepagePkg, Test: "^TestWhoIsKilled$",
		File: pageFlags,
		Old:  "\tcase t.p.Ended, t.left:\n", New: "\tcase t.p.Ended, t.left, t.replaced:\n",
	},
	{
		Rule: "lease page", Name: "a member that stops does not say so", Pkg: leasepagePkg, Test: "^TestAFeedSaysThatItsMemberStops$",
		File: pageFeed,
		Old:  "if leaving = errors.Is(context.Cause(ctx), rpctypes.ErrGRPCStopped); !leaving {", New: "if leaving = errors.Is(ctx.Err(), rpctypes.ErrGRPCStopped); !leaving {",
	},
	{
		Rule: "lease page", Name: "a member whose reader leaves says that it stops", Pkg: leasepagePkg, Test: "^TestAFeedSaysThatItsMemberStops$",
		File: pageFeed,
		Old:  "if leaving = errors.Is(context.Cause(ctx), rpctypes.ErrGRPCStopped); !leaving {", New: "if leaving = !errors.Is(ctx.Err(), rpctypes.ErrGRPCStopped); !leaving {",
	},
	{
		Rule: "lease page", Name: "reads are told since the start, again and again", Pkg: leasepagePkg, Test: "^TestNotesTellWhatIsNew$",
		File: pageNotes,
		Old:  "\treturn a - b\n", New: "\treturn a\n",
	},
	{
		Rule: "lease page", Name: "a member that was never heard has no lane", Pkg: leasepagePkg, Test: "^TestMembersThatWereNeverHeardAreShown$",
		File: pageLive,
		Old:  "\t\tp.unheard(id, names)\n", New: "\t\t_ = id\n",
	},
	{
		Rule: "lease page", Name: "a voter without a trace is left out of what is proved", Pkg: leasepagePkg, Test: "^TestNothingIsProvedWithoutAMember$",
		File: "kvnode/leasepage/picture.go",
		Old:  "\t\t\t\tpic.Proved = false // of the others only\n", New: "",
	},
	{
		Rule: "lease page", Name: "who is silent for ever is waited for", Pkg: leasepagePkg, Test: "^TestASilentMemberIsLeft$",
		File: pageFeed,
		Old:  "quiet := time.AfterFunc(silence, cancel)", New: "quiet := time.AfterFunc(1000*silence, cancel)",
	},
}

// leasepageDoors are bugs of what the page takes, and of who is served.
var leasepageDoors = []Mutant{
	{
		Rule: "lease page", Name: "events are kept without a bound", Pkg: leasepagePkg, Test: "^TestSinceIsBounded$",
		File: "kvnode/leasepage/thin.go",
		Old:  "n := max(0, len(events)-maxEvents)", New: "n := 0",
	},
	{
		Rule: "lease page", Name: "notes are kept without a bound", Pkg: leasepagePkg, Test: "^TestNotesAreBounded$",
		File: pageNotes,
		Old:  "n := max(0, len(notes)-maxNotes)", New: "n := 0",
	},
	{
		Rule: "lease page", Name: "a busy leader's events are all drawn", Pkg: leasepagePkg, Test: "^TestThinKeepsThePicture$",
		File: "kvnode/leasepage/thin.go",
		Old:  "if len(same) == 2 {", New: "if false {",
	},
	{
		Rule: "lease page", Name: "the last of a grain is left out", Pkg: leasepagePkg, Test: "^TestThinKeepsThePicture$",
		File: "kvnode/leasepage/thin.go",
		Old:  "kept[same[1]].Kind = leaderlease.TraceNone\n", New: "continue\n",
	},
	{
		Rule: "lease page", Name: "processes of a member that restarts pile up", Pkg: leasepagePkg, Test: "^TestManyProcessesOfOneMember$",
		File: pageLive,
		Old:  "if len(s.others) > maxWatchers {", New: "if false {",
	},
	{
		Rule: "lease page", Name: "a member that restarts takes the place of another", Pkg: leasepagePkg, Test: "^TestManyProcessesOfOneMember$",
		File: pageLive,
		Old:  "return n.member == o.member && n != o })", New: "return n != o })",
	},
	{
		Rule: "lease page", Name: "where processes were is remembered for ever", Pkg: leasepagePkg, Test: "^TestManyProcessesOfOneMember$",
		File: pageLive,
		Old:  "return !slices.ContainsFunc(tracks, func(t *track) bool { return t.p.Start == of })", New: "return false",
	},
	{
		Rule: "lease page", Name: "who was removed is drawn on and on", Pkg: leasepagePkg, Test: "^TestWhoIsNoMemberIsNotDrawn$",
		File: pageLive,
		Old:  "\t\t\tcontinue // not any more\n", New: "",
	},
	{
		Rule: "lease page", Name: "who does not read keeps the others waiting", Pkg: leasepagePkg, Test: "^TestASlowWatcherIsDropped$",
		File: pageLive,
		Old:  "\t\t\tclose(w.pictures)\n\t\t\tdelete(s.watchers, w)\n", New: "\t\t\tw.pictures <- *data\n",
	},
	{
		Rule: "lease page", Name: "a member is asked when nobody watches any more", Pkg: leasepagePkg, Test: "^TestNobodyWatches$",
		File: pageLive,
		Old:  "\tlast := len(s.watchers) == 0\n", New: "\tlast := false\n",
	},
	{
		Rule: "lease page", Name: "a feed is believed about other members", Pkg: leasepagePkg, Test: "^TestParseRefuses$",
		File: pageFeed,
		Old:  "if len(all) != 1 || all[0].Start.ID != member {", New: "if len(all) == 0 {",
	},
	{
		Rule: "lease page", Name: "leases of no length are drawn", Pkg: leasepagePkg, Test: "^TestParseRefuses$",
		File: pageFeed,
		Old:  "d <= 0 {", New: "false {",
	},
	{
		Rule: "lease page", Name: "members are fed without a bound", Pkg: leasepagePkg, Test: "^TestFeedsAreFew$",
		File: pageFeed,
		Old:  "if l.feeds.Add(1) > maxWatchers {", New: "if l.feeds.Add(1) < 0 {",
	},
	{
		Rule: "lease page", Name: "a feed that has ended keeps its place", Pkg: leasepagePkg, Test: "^TestFeedsAreFew$",
		File: pageFeed,
		Old:  "\tdefer l.feeds.Add(-1)\n", New: "",
	},
	{
		Rule: "lease page", Name: "pages are drawn for without a bound", Pkg: webPkg, Test: "^TestLeasePageHasFewWatchers$",
		File: pageLive,
		Old:  "if len(s.watchers) >= maxWatchers {", New: "if false {",
	},
	{
		Rule: "lease page", Name: "a page of somebody else listens", Pkg: webPkg, Test: "^TestLeasePageIsServedSafely$",
		File: "kvnode/leasepage/serve.go",
		Old:  "\t\tasked.Method = http.MethodPost\n", New: "",
	},
	{
		Rule: "lease page", Name: "another page may frame it", Pkg: webPkg, Test: "^TestLeasePageIsServedSafely$",
		File: "kvnode/leasepage/serve.go",
		Old:  "Policy + \"; frame-ancestors 'none'\"", New: "Policy",
	},
	{
		Rule: "lease page", Name: "the name of a member ends the element that it is in", Pkg: leasepagePkg, Test: "^TestWriteEscapes$",
		File: "kvnode/leasepage/page.go",
		Old:  "\"{{picture}}\", string(data),", New: "\"{{picture}}\", strings.ReplaceAll(string(data), `\\u003c`, `<`),",
	},
	{
		Rule: "lease page", Name: "it is served although it is turned off", Pkg: webPkg, Test: "^TestLeasePageCanBeTurnedOff$",
		File: "kvnode/server/leasepage.go",
		Old:  "\tif s.cfg.DisableLeasePage {\n", New: "\tif false {\n",
	},
	{
		Rule: "lease page", Name: "a stream goes on when the member stops", Pkg: webPkg, Test: "^TestLeasePageShowsAllMembers$",
		File: "kvnode/leasepage/serve.go",
		Old:  "\t\t\tcase <-ending.Done():\n", New: "",
	},
}
