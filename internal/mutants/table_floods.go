package main

const (
	floodPkg = "./kvnode/server/floodgate"
)

// floods are bugs of what one connection may cost, and of what tells of it.
var floods = []Mutant{
	{
		Rule: "floods", Name: "nobody counts what clients send", Pkg: serverPkg, Test: "^TestFloods$",
		File: "kvnode/server/counted.go",
		Old:  "\treturn c.gate.Conn(conn, func() bool { return c.isMember(host) }), info, nil\n",
		New:  "\t_ = host\n\treturn conn, info, nil\n",
	},
	{
		Rule: "floods", Name: "who is in debt is never closed", Pkg: floodPkg, Test: "^TestFloodsAreClosed$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tif c.balance < -maxDebt {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "floods", Name: "answers pay for nothing", Pkg: floodPkg, Test: "^TestClientsThatAreServedNeverWait$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\tcase f.kind == frameHeaders, f.kind == frameData:\n\t\t\tearned++\n",
		New:  "\t\tcase f.kind == frameHeaders, f.kind == frameData:\n",
	},
	{
		Rule: "floods", Name: "a deadline that passes is held against the client", Pkg: floodPkg, Test: "^TestClientsThatAreServedNeverWait$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\tif f.stream <= c.ages.old {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "floods", Name: "a stream is old at once", Pkg: floodPkg, Test: "^TestResetsOfYoungStreams$",
		File: "kvnode/server/floodgate/ages.go",
		Old:  "\tcase now.Sub(a.seen) >= young:\n",
		New:  "\tcase true:\n",
	},
	{
		Rule: "floods", Name: "a stream of an idle connection stays young", Pkg: floodPkg, Test: "^TestDeadlinesThatPassAtOnce$",
		File: "kvnode/server/floodgate/ages.go",
		Old:  "\tcase now.Sub(a.seen) >= young:\n\t\ta.old, a.mark, a.marked = a.newest, a.newest, now\n",
		New:  "",
	},
	{
		Rule: "floods", Name: "a stream of a busy connection stays young", Pkg: floodPkg, Test: "^TestClientsThatAreServedNeverWait$",
		File: "kvnode/server/floodgate/ages.go",
		Old:  "\tcase now.Sub(a.marked) >= young:\n\t\ta.old, a.mark, a.marked = a.mark, a.newest, now\n",
		New:  "",
	},
	{
		Rule: "floods", Name: "what the server has to reset costs nothing", Pkg: floodPkg, Test: "^TestWhatTheServerResets$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "f.code != codeNone && f.code != codeCancel {\n",
		New:  "false {\n",
	},
	{
		Rule: "streams", Name: "streams that the server has ended stay open", Pkg: floodPkg, Test: "^TestWhichStreamsAreOpen$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "flagEndStream != 0:\n\t\t\tc.streams.end(f.stream)\n",
		New:  "flagEndStream != 0:\n",
	},
	{
		Rule: "streams", Name: "streams that the server has reset stay open", Pkg: floodPkg, Test: "^TestWhichStreamsAreOpen$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\t\tc.streams.end(f.stream)\n\t\t\tif f.code",
		New:  "\t\t\tif f.code",
	},
	{
		Rule: "streams", Name: "streams that the client has reset stay open", Pkg: floodPkg, Test: "^TestWhichStreamsAreOpen$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tcase frameReset:\n\t\tc.streams.end(f.stream)\n",
		New:  "\tcase frameReset:\n",
	},
	{
		Rule: "streams", Name: "a stream ends as often as somebody says so", Pkg: floodPkg, Test: "^TestWhichStreamsAreOpen$",
		File: "kvnode/server/floodgate/streams.go",
		Old:  "\tif _, ok := s.mu.open[id]; ok {\n\t\tdelete(",
		New:  "\tif true {\n\t\tdelete(",
	},
	{
		Rule: "streams", Name: "the streams of closed connections stay open", Pkg: floodPkg, Test: "^TestWhichStreamsAreOpen$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\tc.streams.leave()\n",
		New:  "",
	},
	{
		Rule: "streams", Name: "a connection may take all streams", Pkg: floodPkg, Test: "^TestConnectionsShareTheStreams$",
		File: "kvnode/server/floodgate/streams.go",
		Old:  "\tif weight+all <= g.most ||",
		New:  "\tif all <= g.most ||",
	},
	{
		Rule: "streams", Name: "what lasts leaves no room for what ends it", Pkg: floodPkg, Test: "^TestConnectionsShareTheStreams$",
		File: "kvnode/server/floodgate/streams.go",
		Old:  "\t\tweight *= 2\n",
		New:  "",
	},
	{
		Rule: "streams", Name: "streams that are refused count", Pkg: floodPkg, Test: "^TestConnectionsShareTheStreams$",
		File: "kvnode/server/floodgate/streams.go",
		Old:  "\tcounted.streams.end(counted.ages.newest)\n",
		New:  "",
	},
	{
		Rule: "streams", Name: "a member shares its streams like a client", Pkg: floodPkg, Test: "^TestMembersTakeWhatIsLeft$",
		File: "kvnode/server/floodgate/streams.go",
		Old:  " || all <= g.most && counted.member() {",
		New:  " {",
	},
	{
		Rule: "streams", Name: "nobody counts streams", Pkg: serverPkg, Test: "^TestTooManyStreams$",
		File: "kvnode/server/entrance.go",
		Old:  ", grpc.InTapHandle(admit)}",
		New:  "}",
	},
	{
		Rule: "streams", Name: "a connection has 256 streams, and the next one hangs", Pkg: serverPkg, Test: "^TestWhoWaitsKeepsNobodyOut$",
		File: "kvnode/etcdapi/config.go",
		Old:  "DefaultMaxConcurrentStreams = math.MaxUint32\n",
		New:  "DefaultMaxConcurrentStreams = 256 + 0*math.MaxInt8\n",
	},
	{
		Rule: "streams", Name: "two streams begin in one read", Pkg: floodPkg, Test: "^TestStreamsComeOneByOne$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "f.kind == frameHeaders && begun && at > 0 {",
		New:  "false && at > 0 {",
	},
	{
		Rule: "streams", Name: "a stream begins in the read that ends another", Pkg: floodPkg, Test: "^TestStreamsComeOneByOne$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tbegun := c.heads && (c.in.skip > 0 || !c.headed)\n",
		New:  "\tbegun := false\n",
	},
	{
		Rule: "streams", Name: "a stream begins between two parts of another", Pkg: floodPkg, Test: "^TestStreamsComeOneByOne$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "(c.in.skip > 0 || !c.headed)",
		New:  "c.in.skip > 0",
	},
	{
		Rule: "floods", Name: "who takes no answers goes on asking", Pkg: floodPkg, Test: "^TestWhoTakesNoAnswersAsksNothing$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tcase c.pen <- struct{}{}:\n\t\t<-c.pen\n\t\treturn nil\n\tcase",
		New:  "\tdefault:\n\t\treturn nil\n\tcase",
	},
	{
		Rule: "floods", Name: "the wait for answers outlasts its connection", Pkg: floodPkg, Test: "^TestCloseEndsTheWaitForAnswers$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\t<-c.pen\n\t\treturn nil\n\tcase <-c.closed:\n\t\treturn net.ErrClosed\n",
		New:  "\t\t<-c.pen\n\t\treturn nil\n",
	},
	{
		Rule: "floods", Name: "each connection has an allowance of its own", Pkg: floodPkg, Test: "^TestConnectionsShareOneAllowance$",
		File: "kvnode/server/floodgate/gate.go",
		Old:  "\tr := allowance.ReserveN(",
		New:  "\tr := rate.NewLimiter(perSecond, burst).ReserveN(",
	},
	{
		Rule: "floods", Name: "any number of connections in debt may wait", Pkg: floodPkg, Test: "^TestTheQueueIsBounded$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tif late && c.balance < 0 {\n",
		New:  "\tif late && false {\n",
	},
	{
		Rule: "floods", Name: "debts are not forgiven", Pkg: floodPkg, Test: "^TestDebtsAreForgiven$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tc.balance = min(0, c.balance+min(most, int64(idle/each)))\n",
		New:  "\t_ = most\n",
	},
	{
		Rule: "floods", Name: "answers do not pay for resets of old streams", Pkg: floodPkg, Test: "^TestOldResetsHoldUpNobody$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\told := max(0, t.old-max(0, c.balance))\n",
		New:  "\told := t.old\n",
	},
	{
		Rule: "floods", Name: "resets of old streams wait without end", Pkg: floodPkg, Test: "^TestOldResetsHoldUpNobody$",
		File: "kvnode/server/floodgate/gate.go",
		Old:  "wait <= most {",
		New:  "wait <= most || true {",
	},
	{
		Rule: "floods", Name: "resets of old streams take the turns of others", Pkg: floodPkg, Test: "^TestOldResetsHoldUpNobody$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "turn(c.gate.patient, now",
		New:  "turn(c.gate.allowance, now",
	},
	{
		Rule: "floods", Name: "what is forgiven is not counted", Pkg: floodPkg, Test: "^TestForgivenFramesTakeTurns$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\tc.forgive(now)\n",
		New:  "\t\tc.forgive(now)\n\t\towed = min(owed, max(0, -c.balance))\n",
	},
	{
		Rule: "floods", Name: "debts are forgiven as fast when many queue", Pkg: floodPkg, Test: "^TestForgivenFramesTakeTurns$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tif c.gate.busy(now) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "floods", Name: "members are closed for their clients' resets", Pkg: floodPkg, Test: "^TestMembersAreNotClosed$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "most, spared := maxWait, c.member()",
		New:  "most, spared := maxWait, false",
	},
	{
		Rule: "floods", Name: "a stream that the server ends is held against the client", Pkg: floodPkg, Test: "^TestStreamsThatTheServerEnds$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "if f.code != codeNone && f.code",
		New:  "if f.code",
	},
	{
		Rule: "floods", Name: "who is not answered by a server that stalls is closed", Pkg: floodPkg, Test: "^TestAServerThatAnswersNobodyClosesNobody$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tif !spared && owed > 0 && c.gate.mute(now) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "floods", Name: "answers to others do not count", Pkg: floodPkg, Test: "^TestAServerThatAnswersNobodyClosesNobody$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\tc.gate.answers.Store(true)\n",
		New:  "",
	},
	{
		Rule: "floods", Name: "a wait outlasts its connection", Pkg: floodPkg, Test: "^TestCloseEndsTheWait$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tcase <-turn.C:\n\t\treturn nil\n\tcase <-c.closed:\n\t\treturn net.ErrClosed\n",
		New:  "\tcase <-turn.C:\n\t\treturn nil\n",
	},
	{
		Rule: "floods", Name: "short frames are taken as they come", Pkg: floodPkg, Test: "^TestShortFramesAreTakenInSmallPieces$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tc.dense = frames*denseFrame > n\n",
		New:  "\t_ = frames\n",
	},
	{
		Rule: "floods", Name: "a header in two pieces is lost", Pkg: floodPkg, Test: "^TestFramesAreFoundInAnyPieces$",
		File: "kvnode/server/floodgate/frame.go",
		Old:  "\t\tif s.have < want {\n\t\t\treturn frame{}, nil, false\n",
		New:  "\t\tif s.have < want {\n\t\t\ts.have = 0\n\t\t\treturn frame{}, nil, false\n",
	},
	{
		Rule: "floods", Name: "nobody notes how late the loop is", Pkg: nodePkg, Test: "^TestLateness$",
		File: "kvnode/loop.go",
		Old:  "\t\t\tn.late.note(time.Since(due))\n",
		New:  "\t\t\t_ = due\n",
	},
}
