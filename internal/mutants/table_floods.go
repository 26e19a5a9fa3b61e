package main

const (
	floodPkg = "./kvnode/server/floodgate"
)

// floods are bugs of what one connection may cost, and of what tells of it.
var floods = []Mutant{
	{
		Rule: "floods", Name: "nobody counts what clients send", Pkg: serverPkg, Test: "^TestFloods$",
		File: "kvnode/server/counted.go",
		Old:  "\treturn c.gate.Conn(conn), info, nil\n",
		New:  "\treturn conn, info, nil\n",
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
		Old:  "\t\t\tif f.code != codeCancel {\n",
		New:  "\t\t\tif false {\n",
	},
	{
		Rule: "floods", Name: "streams beyond the limit cost nothing", Pkg: floodPkg, Test: "^TestFloodsAreClosed$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "f.flags&flagEndStream == 0 && c.open <= c.gate.streams {\n",
		New:  "f.flags&flagEndStream == 0 {\n",
	},
	{
		Rule: "floods", Name: "streams that have ended stay open", Pkg: floodPkg, Test: "^TestClientsThatAreServedNeverWait$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\t\tended++\n\t\tcase f.kind == frameHeaders, f.kind",
		New:  "\t\tcase f.kind == frameHeaders, f.kind",
	},
	{
		Rule: "floods", Name: "each connection has an allowance of its own", Pkg: floodPkg, Test: "^TestConnectionsShareOneAllowance$",
		File: "kvnode/server/floodgate/gate.go",
		Old:  "\tr := g.allowance.ReserveN(",
		New:  "\tr := rate.NewLimiter(perSecond, burst).ReserveN(",
	},
	{
		Rule: "floods", Name: "any number of connections in debt may wait", Pkg: floodPkg, Test: "^TestTheQueueIsBounded$",
		File: "kvnode/server/floodgate/gate.go",
		Old:  "\tif inDebt && d > maxWait {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "floods", Name: "debts are not forgiven", Pkg: floodPkg, Test: "^TestDebtsAreForgiven$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\t\tc.balance = min(0, c.balance+int64(idle/debtTime))\n",
		New:  "",
	},
	{
		Rule: "floods", Name: "a wait outlasts its connection", Pkg: floodPkg, Test: "^TestCloseEndsTheWait$",
		File: "kvnode/server/floodgate/conn.go",
		Old:  "\tcase <-c.closed:\n\t\treturn net.ErrClosed\n",
		New:  "",
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
