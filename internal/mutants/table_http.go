package main

const (
	webPkg = "./kvnode/server"
	cliPkg = "./cmd/kvnode/internal/cli"
)

// web are bugs of what a web page, a slow client or a greedy one is allowed, and
// of what people are shown.
var web = []Mutant{
	{
		Rule: "status", Name: "the term of a restart without an election is 0", Pkg: nodePkg, Test: "^TestTheTermOutlivesARestart$",
		File: "kvnode/start.go",
		Old:  "\tn.term.Store(hard.GetTerm())\n",
		New:  "\t_ = hard\n",
	},
	{
		Rule: "web", Name: "a web page that was rebound reads and writes", Pkg: webPkg, Test: "^TestAWebPageGetsNothing$",
		File: "kvnode/server/server.go",
		Old:  "s.hosts.Only(s.clientPages(gateway))",
		New:  "s.clientPages(gateway)",
	},
	{
		Rule: "web", Name: "hosts are checked only where data is", Pkg: webPkg, Test: "^TestAWebPageGetsNothing$",
		File: "kvnode/server/server.go",
		Old:  "s.hosts.Only(s.clientPages(gateway))",
		New:  "s.clientPages(gateway)",
		More: []Edit{{"kvnode/server/pages.go", "http.NewCrossOriginProtection().Handler(gateway)", "s.hosts.Only(http.NewCrossOriginProtection().Handler(gateway))"}},
	},
	{
		Rule: "web", Name: "a page from elsewhere writes", Pkg: webPkg, Test: "^TestAWebPageGetsNothing$",
		File: "kvnode/server/pages.go",
		Old:  "http.NewCrossOriginProtection().Handler(gateway)",
		New:  "gateway",
	},
	{
		Rule: "web", Name: "a name that begins with an address is one", Pkg: webPkg, Test: "^TestHostsThatAreAnswered$",
		File: "kvnode/server/frontdoor/hosts.go",
		Old:  "\t_, err := netip.ParseAddr(name)\n",
		New:  "\t_, err := netip.ParseAddr(name[:min(len(name), len(\"127.0.0.1\"))])\n",
	},
	{
		Rule: "web", Name: "monitoring has to be told of", Pkg: webPkg, Test: "^TestAWebPageGetsNothing$",
		File: "kvnode/server/server.go",
		Old:  "s.servePages(listener, s.metricsPages())",
		New:  "s.servePages(listener, s.hosts.Only(s.metricsPages()))",
	},
	{
		Rule: "web", Name: "TLS without ALPN is taken for plain text", Pkg: webPkg, Test: "^TestAnyHostIsAnswered$",
		File: "kvnode/server/frontdoor/hosts.go",
		Old:  "\t\tc = above.NetConn()\n",
		New:  "\t\t_ = above\n\t\treturn false\n",
	},
	{
		Rule: "names", Name: "a new member may have a name that terminals act upon", Pkg: nodePkg, Test: "^TestNamesOfNewMembers$",
		File: "kvnode/datadir.go",
		Old:  "errors.Join(cfg.checkName(), cfg.dir().MakeEmpty())",
		New:  "cfg.dir().MakeEmpty()",
	},
	{
		Rule: "names", Name: "an old member with such a name does not start any more", Pkg: nodePkg, Test: "^TestNamesOfNewMembers$",
		File: "kvnode/datadir.go",
		Old:  "\tid, err := readIdentity(&c)\n",
		New:  "\tid, err := readIdentity(&c)\n\tif e := c.checkName(); e != nil {\n\t\treturn e\n\t}\n",
	},
	{
		Rule: "names", Name: "only what ASCII has is quoted", Pkg: nodePkg, Test: "^TestNamesAreShownAsTheyAre$",
		File: "kvnode/shown.go",
		Old:  "return !unicode.IsPrint(r)",
		New:  "return r < ' '",
		More: []Edit{{"kvnode/shown.go", "\t\"unicode\"\n", ""}},
	},
	{
		Rule: "names", Name: "the registry's names are shown as they are", Pkg: nodePkg, Test: "^TestOldNamesAreShownQuoted$",
		File: "kvnode/names.go",
		Old:  "\tname := Shown(m.Name)\n",
		New:  "\tname := m.Name\n",
	},
	{
		Rule: "names", Name: "the table of the status has what members say", Pkg: cliPkg, Test: "^TestStatusOfAStrangeMember$",
		File: "cmd/kvnode/internal/cli/table.go",
		Old:  "row[i] = oneLine(cell)",
		New:  "row[i] = cell",
	},
	{
		Rule: "names", Name: "JSON on a terminal has what members say", Pkg: cliPkg, Test: "^TestStatusOfAStrangeMember$",
		File: "cmd/kvnode/internal/cli/table.go",
		Old:  "printableJSON(string(data))",
		New:  "string(data)",
	},
	{
		Rule: "directory", Name: "nobody is told that others may write to the directory", Pkg: nodePkg, Test: "^TestADirectoryOfOthersIsWarnedOf$",
		File: "kvnode/start.go",
		Old:  "\tn.cfg.warnOfWriters()\n",
		New:  "",
	},
	{
		Rule: "directory", Name: "only what everybody may write to is warned of", Pkg: "./kvnode/memberdir", Test: "^TestWhoMayWrite$",
		File: "kvnode/memberdir/writers_unix.go",
		Old:  "perm&0o020 != 0",
		New:  "false",
	},
	{
		Rule: "bodies", Name: "a body may take as long as it likes", Pkg: webPkg, Test: "^TestABodyThatTakesForEver$",
		File: "kvnode/server/pages.go",
		Old:  "Handler: timely(handler),",
		New:  "Handler: handler,",
	},
	{
		Rule: "bodies", Name: "streams are cut after a minute", Pkg: webPkg, Test: "^TestWhatMayLast$",
		File: "kvnode/server/bodies.go",
		Old:  "r.Body != http.NoBody && !streaming[currentPath(r.URL.Path)]",
		New:  "r.Body != http.NoBody",
	},
	{
		Rule: "replies", Name: "large replies are not counted", Pkg: apiPkg, Test: "^TestRepliesStayWithinTheirBound$",
		File: "kvnode/etcdapi/intercept.go",
		Old:  "\treturn a.weigh(ctx, resp)\n",
		New:  "\treturn resp, nil\n",
	},
	{
		Rule: "replies", Name: "chunks of a stream are not counted", Pkg: apiPkg, Test: "^TestRepliesStayWithinTheirBound$",
		File: "kvnode/etcdapi/rangestream.go",
		Old:  "\tif size <= smallReply {\n",
		New:  "\tif size > 0 {\n",
	},
	{
		Rule: "replies", Name: "a reply is given up when its request has been answered", Pkg: apiPkg, Test: "^Test(RepliesStayWithinTheirBound|WeighedRepliesAreEncodedAsOthers)$",
		File: "kvnode/etcdapi/encode.go",
		Old:  "\tb := &replyBytes{room: w.room}\n",
		New:  "\tb := &replyBytes{room: w.room}\n\tw.room.release()\n",
	},
	{
		Rule: "replies", Name: "the bytes of a reply are never given back", Pkg: apiPkg, Test: "^TestWeighedRepliesAreEncodedAsOthers$",
		File: "kvnode/etcdapi/encode.go",
		Old:  "\tb.forgotten.Stop()\n\tb.room.release()\n",
		New:  "\tb.forgotten.Stop()\n",
	},
	{
		Rule: "replies", Name: "what a connection that ends had is never given back", Pkg: apiPkg, Test: "^TestRepliesOfAConnectionThatEnds$",
		File: "kvnode/etcdapi/encode.go",
		Old:  "\tb.forgotten = runtime.AddCleanup(b, (*room).release, w.room)\n",
		New:  "\tb.forgotten = runtime.AddCleanup(b, func(*room) {}, w.room)\n",
	},
	{
		Rule: "replies", Name: "who comes last passes those that wait", Pkg: apiPkg, Test: "^TestRepliesWaitInOrder$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "b.mu.line.PushBack(r)",
		New:  "b.mu.line.PushFront(r)",
	},
	{
		Rule: "replies", Name: "one that is larger than the bound never passes", Pkg: apiPkg, Test: "^TestRepliesWaitInOrder$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "bytes: min(size*times, b.limit)",
		New:  "bytes: size * times",
	},
	{
		Rule: "replies", Name: "who has left the line stands in it", Pkg: apiPkg, Test: "^TestRepliesThatFindNoRoom$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "\t\t\tr.release()\n\t\t\treturn nil, status",
		New:  "\t\t\treturn nil, status",
	},
	{
		Rule: "replies", Name: "who takes nothing keeps others waiting", Pkg: apiPkg, Test: "^TestWhoTakesNothingIsCutOff$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "\t\tif now.After(r.until) || ",
		New:  "\t\tif ",
	},
	{
		Rule: "replies", Name: "whose reply waits is under way", Pkg: apiPkg, Test: "^TestRepliesThatWaitAreNotUnderWay$",
		File: "kvnode/etcdapi/intercept.go",
		Old:  "\treturn a.inTime(ctx, begun, req, handle)\n",
		New:  "\tresp, err := a.inTime(ctx, begun, req, handle)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\treturn a.weigh(ctx, resp)\n",
	},
	{
		Rule: "replies", Name: "the line has no end", Pkg: apiPkg, Test: "^TestTheLineOfRepliesIsBounded$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "all >= maxWaiting || ",
		New:  "",
	},
	{
		Rule: "replies", Name: "one connection takes the whole line", Pkg: apiPkg, Test: "^TestTheLineOfRepliesIsBounded$",
		File: "kvnode/etcdapi/replies.go",
		Old:  " || own >= maxWaitingOfOne",
		New:  "",
	},
	{
		Rule: "replies", Name: "a reply waits as long as its client does", Pkg: apiPkg, Test: "^TestRepliesWaitForATime$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "context.WithTimeout(ctx, b.patience)",
		New:  "context.WithCancel(ctx)",
	},
	{
		Rule: "replies", Name: "each of those who wait looks for itself", Pkg: apiPkg, Test: "^TestWhoWaitsLooksOnce$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "b.mu.line.Len() == 0 || now.Before(b.mu.reclaim)",
		New:  "b.mu.line.Len() == 0",
	},
	{
		Rule: "replies", Name: "a reply takes more memory than is counted", Pkg: apiPkg, Test: "^TestRepliesTakeWhatIsCounted$",
		File: "kvnode/etcdapi/encode.go",
		Old:  "\tdata, err := proto.Marshal(w.message)\n",
		New:  "\tdata, err := proto.MarshalOptions{}.MarshalAppend((*mem.DefaultBufferPool().Get(proto.Size(w.message)))[:0], w.message)\n",
	},
	{
		Rule: "replies", Name: "a large event of a watch takes more memory than it has bytes", Pkg: apiPkg, Test: "^TestRepliesTakeWhatIsCounted$",
		File: "kvnode/etcdapi/encode.go",
		Old:  "\tcase *pb.WatchResponse, *pb.SnapshotResponse:",
		New:  "\tcase *pb.SnapshotResponse:",
	},
	{
		Rule: "replies", Name: "replies for which gRPC has no buffer are not counted", Pkg: apiPkg, Test: "^TestRepliesTakeWhatIsCounted$",
		File: "kvnode/etcdapi/replies.go",
		Old:  "\tsmallReply = 32 << 10\n",
		New:  "\tsmallReply = 64 << 10\n",
	},
	{
		Rule: "replies", Name: "a reply is estimated without its header", Pkg: apiPkg, Test: "^TestEstimatesAreNotLess$",
		File: "kvnode/etcdapi/encode.go",
		Old:  "\tn := header\n",
		New:  "\tn := header - header\n",
	},
	{
		Rule: "replies", Name: "a get takes a lock that all share", Pkg: apiPkg, Test: "^TestSmallRepliesAreNotCounted$",
		File: "kvnode/etcdapi/encode.go",
		Old:  "\tsize := replySize(reply)\n",
		New:  "\tsize := replySize(reply)\n\tif !a.replies.mu.TryLock() {\n\t\treturn nil, ctx.Err()\n\t}\n\ta.replies.mu.Unlock()\n",
	},
	{
		Rule: "replies", Name: "the gateway's copies are not counted", Pkg: apiPkg, Test: "^TestRepliesOverTheGateway$",
		File: "kvnode/etcdapi/gateway.go",
		Old:  "\t\truntime.WithMetadata(a.deliveries.annotate),\n",
		New:  "",
	},
	{
		Rule: "replies", Name: "a client over HTTP that takes nothing is waited for", Pkg: apiPkg, Test: "^TestRepliesOverTheGateway$",
		File: "kvnode/etcdapi/gateway.go",
		Old:  "\t\t\ta.deliveries.hurry(ctx, w)\n",
		New:  "\t\t\t_, _ = ctx, w\n",
	},
	{
		Rule: "replies", Name: "connections of clients cannot be ended", Pkg: webPkg, Test: "^TestConnectionsOfClientsCanBeEnded$",
		File: "kvnode/server/frontdoor/entrance.go",
		Old:  "grpc.Creds(endable{counted{e}})",
		New:  "grpc.Creds(counted{e})",
	},
	{
		Rule: "web", Name: "a unix socket with an odd name speaks plain text", Pkg: webPkg, Test: "^TestUnixSocketsWithOddNamesSpeakTLS$",
		File: "kvnode/server/frontdoor/urls.go",
		Old:  "\t\treturn strings.HasPrefix(s, secureSocket)\n",
		New:  "\t\t_, err := url.Parse(s)\n\t\treturn err == nil && strings.HasPrefix(s, secureSocket)\n",
	},
	{
		Rule: "bodies", Name: "streams are cut after a minute by their old names", Pkg: webPkg, Test: "^TestWhatMayLast$",
		File: "kvnode/server/bodies.go",
		Old:  "!streaming[currentPath(r.URL.Path)]",
		New:  "!streaming[r.URL.Path]",
	},
	{
		Rule: "web", Name: "whoever asks at a unix socket has to know a host", Pkg: webPkg, Test: "^TestUnixSockets$",
		File: "kvnode/server/frontdoor/hosts.go",
		Old:  "speaksTLSNow(c) || c.LocalAddr().Network() == \"unix\"",
		New:  "speaksTLSNow(c)",
	},
}
