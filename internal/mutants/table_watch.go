package main

const (
	watchPkg   = "./kvnode/store/watch"
	watchModel = "^TestWatchersGetTheHistory$"
)

// watches are bugs of watches: what is told, when, and how much is kept.
var watches = []Mutant{
	{
		Rule: "watch", Name: "watchers take what memory they want", Pkg: watchPkg, Test: "^TestWatchersTakeSoMuchMemoryAtMost$",
		File: "kvnode/store/watch/room.go",
		Old:  "all > m.most {\n",
		New:  "all < 0 {\n",
	},
	{
		Rule: "watch", Name: "progress piles up for who does not take it", Pkg: watchPkg, Test: "^TestProgressThatWaitsIsNotToldTwice$",
		File: "kvnode/store/watch/progress.go",
		Old:  "\t\t\tw.told = true\n",
		New:  "",
	},
	{
		Rule: "watch", Name: "progress is told once and never again", Pkg: watchPkg, Test: "^TestProgressThatWaitsIsNotToldTwice$",
		File: "kvnode/store/watch/next.go",
		Old:  "\tx.w.told = x.w.told && len(x.events) > 0\n",
		New:  "",
	},
	{
		Rule: "watch", Name: "what the watchers of a stream took is not free when it is closed", Pkg: watchPkg, Test: "^TestWatchersTakeSoMuchMemoryAtMost$",
		File: "kvnode/store/watch/stream.go",
		Old:  "\tfor _, w := range s.watchers {\n\t\th.room.give(&w.Request)\n",
		New:  "\tfor _, w := range s.watchers {\n",
	},
	{
		Rule: "gap", Name: "a watcher that is behind goes on after what it was refused", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/hub.go",
		Old:  "\t\t\tw.next = r.number\n",
		New:  "\t\t\tw.next = r.number + 1\n",
	},
	{
		Rule: "gap", Name: "what the hub has missed is not fetched from the history", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/hub.go",
		Old:  "\t\t\th.resyncLocked(r.number)\n",
		New:  "",
	},
	{
		Rule: "gap", Name: "a watcher of the past is served by the hub", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/stream.go",
		Old:  "\tsynced := w.next > revision && w.next >= h.mu.next\n",
		New:  "\tsynced := true\n",
	},
	{
		Rule: "gap", Name: "the hub takes over before the history has come to it", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/catchup.go",
		Old:  "\t\tif w.next >= h.mu.next {\n",
		New:  "\t\tif w.next >= h.mu.next-1 {\n",
	},
	{
		Rule: "gap", Name: "what was found before a compaction passed by is told", Pkg: watchPkg, Test: "^TestACompactionThatPassesByEndsWatchers$",
		File: "kvnode/store/watch/catchup.go",
		Old:  "\tif err != nil {\n",
		New:  "\tif err != nil {\n\t\tnext = h.history.Revision() + 1\n\t}\n\tif false {\n",
	},
	{
		Rule: "gap", Name: "a compacted watcher is not ended", Pkg: watchPkg, Test: "^TestCompactionEndsTheWatchersThatNeedMore$",
		File: "kvnode/store/watch/catchup.go",
		Old:  "\t\tcase w.next < compacted:\n",
		New:  "\t\tcase false:\n",
	},
	{
		Rule: "twice", Name: "what was in the queue is fetched from the history again", Pkg: watchPkg, Test: "^TestReadersThatPauseMissNothing$",
		File: "kvnode/store/watch/hub.go",
		Old:  "\t\t\tw.next = r.number\n",
		New:  "\t\t\tw.next = r.number - 1\n",
	},
	{
		Rule: "twice", Name: "events from before a watcher's start", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/watcher.go",
		Old:  "\tif e.write.KV.GetModRevision() < w.next ||",
		New:  "\tif false ||",
	},
	{
		Rule: "order", Name: "the history overtakes the queue", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/catchup.go",
		Old:  "\t\t\tif to.queued == 0 {\n",
		New:  "\t\t\tif true {\n",
		More: []Edit{{"kvnode/store/watch/catchup.go", "\t\tcase w.queued > 0:\n", "\t\tcase false:\n"}},
	},
	{
		Rule: "order", Name: "a part of the history ends within a revision", Pkg: storePkg, Test: "^TestHistoryShowsTheWritesInOrder$",
		File: "kvnode/store/history.go",
		Old:  "\t\tif v.main() != last && (!more || limit <= 0) {\n",
		New:  "\t\tif last != 0 && (!more || limit <= 0) {\n",
	},
	{
		Rule: "bound", Name: "the queue of a client that does not read grows", Pkg: watchPkg, Test: "^TestASlowStreamIsBoundedAndHoldsUpNobody$",
		File: "kvnode/store/watch/queue.go",
		Old:  "\t\treturn false\n\t}\n\ts.appendLocked(x)\n",
		New:  "\t}\n\ts.appendLocked(x)\n",
	},
	{
		Rule: "bound", Name: "the inbox of a hub that lags grows", Pkg: watchPkg, Test: "^TestAnInboxThatOverflowsLosesNothing$",
		File: "kvnode/store/watch/inbox.go",
		Old:  "\t\tb.missLocked(number)\n\t\treturn\n",
		New:  "",
	},
	{
		Rule: "progress", Name: "told while the hub is behind the store", Pkg: watchPkg, Test: "^TestProgressWaitsForAllWatchers$",
		File: "kvnode/store/watch/progress.go",
		Old:  "\tcase h.mu.next <= s.asked:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "progress", Name: "told while a watcher is behind", Pkg: watchPkg, Test: "^TestProgressWaitsForAllWatchers$",
		File: "kvnode/store/watch/progress.go",
		Old:  "\tif s.asked == 0 || s.behind.size > 0 {\n",
		New:  "\tif s.asked == 0 {\n",
		More: []Edit{{"kvnode/store/watch/progress.go", "\t\tif !w.synced {\n", "\t\tif false {\n"}},
	},
	{
		Rule: "progress", Name: "told to a watcher that came later", Pkg: watchPkg, Test: "^TestProgressIsNotToldToThoseThatCameLater$",
		File: "kvnode/store/watch/progress.go",
		Old:  "\tif x.w != nil || x.added == s.added {\n",
		New:  "\tif true {\n",
	},
	{
		Rule: "filter", Name: "deletes are told to those who want none", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/watcher.go",
		Old:  "\t\treturn !w.NoDelete\n",
		New:  "\t\treturn true\n",
	},
	{
		Rule: "filter", Name: "the version before is told to those who do not ask", Pkg: watchPkg, Test: watchModel, Model: true,
		File: "kvnode/store/watch/watcher.go",
		Old:  "\tif w.PrevKV && e.write.Prev != nil {\n",
		New:  "\tif e.write.Prev != nil {\n",
	},
	{
		Rule: "fragment", Name: "a fragment is larger than a client takes", Pkg: apiPkg, Test: "^TestFragmentsAreBelowTheLimit$", Model: true,
		File: "kvnode/etcdapi/watchsend.go",
		Old:  "\t\t\tif n > 0 && size >= limit {\n",
		New:  "\t\t\tif n > 0 && size >= limit+limit/8 {\n",
	},
	{
		Rule: "fragment", Name: "the last fragment says that more follows", Pkg: apiPkg, Test: "^TestWatchSplitsWhatIsTooLarge$",
		File: "kvnode/etcdapi/watchsend.go",
		Old:  "Fragment: n < len(rest)}",
		New:  "Fragment: true}",
	},
}
