package main

const clientPkg = "./kvnode/client"

// clients are bugs of how an unmodified client finds the leader. None of them makes an
// answer wrong: the request goes elsewhere.
var clients = []Mutant{
	{
		Rule: "client", Name: "no header names the leader", Pkg: serverPkg, Test: "^TestClientsFindTheLeader$",
		File: "kvnode/etcdapi/header.go",
		Old:  "\ta.leaderID.Put(h, a.node.Leader())\n",
		New:  "",
	},
	{
		Rule: "client", Name: "a header keeps the first leader's ID", Pkg: "./kvnode/internal/leaderid", Test: "^TestALeaderArrives$",
		File: "kvnode/internal/leaderid/leaderid.go",
		Old:  "\tif e == nil || e.id != id {\n",
		New:  "\tif e == nil {\n",
	},
	{
		Rule: "client", Name: "what is for the leader goes round", Pkg: clientPkg, Test: "^TestWhereRequestsGo$",
		File: "kvnode/client/picker.go",
		Old:  "\tif !toLeader {\n",
		New:  "\tif true {\n",
	},
	{
		Rule: "client", Name: "who waits for a lock in vain leaves the leader alone", Pkg: clientPkg, Test: "^TestWhatATimeoutSays$",
		File: "kvnode/client/options.go",
		Old:  "code == codes.DeadlineExceeded && !waits[method]",
		New:  "code == codes.DeadlineExceeded",
	},
	{
		Rule: "client", Name: "what is for the leader takes a turn", Pkg: clientPkg, Test: "^TestWhatIsForTheLeaderTakesNoTurn$",
		File: "kvnode/client/picker.go",
		Old:  "\tf, now := p.known.now.Load(), time.Now()\n",
		New:  "\tf, now := p.known.now.Load(), time.Now()\n\tp.turn()\n",
	},
	{
		Rule: "client", Name: "an unknown leader is any member that is not known", Pkg: clientPkg, Test: "^TestWhereRequestsGo$",
		File: "kvnode/client/known.go",
		Old:  "return f.leader != 0 && f.members[name] == f.leader",
		New:  "return f.members[name] == f.leader",
	},
	{
		Rule: "client", Name: "a leader that hangs gets all requests again", Pkg: clientPkg, Test: "^TestWhereRequestsGo$",
		File: "kvnode/client/picker.go",
		Old:  "\t\tif f.leads(e.name) && !f.rests(e.name, now) {\n",
		New:  "\t\tif f.leads(e.name) {\n",
	},
	{
		Rule: "client", Name: "a leader that has hung once is never one again", Pkg: clientPkg, Test: "^TestWhereRequestsGo$",
		File: "kvnode/client/known.go",
		Old:  "return f.failing == name && now.Before(f.until)",
		New:  "return f.failing == name",
	},
	{
		Rule: "client", Name: "an endpoint keeps its first member", Pkg: clientPkg, Test: "^TestWhereRequestsGo$",
		File: "kvnode/client/known.go",
		Old:  "\tnext.members[name] = member\n",
		New:  "\tif next.members[name] == 0 {\n\t\tnext.members[name] = member\n\t}\n",
	},
	{
		Rule: "client", Name: "a member that knows no leader makes others forget theirs", Pkg: clientPkg, Test: "^TestWhereRequestsGo$",
		File: "kvnode/client/known.go",
		Old:  "\tnext.leader = cmp.Or(leader, next.leader)\n",
		New:  "\tnext.leader = cmp.Or(leader)\n",
	},
	{
		Rule: "client", Name: "serializable reads go to the leader", Pkg: clientPkg, Test: "^TestWhatIsForTheLeader$",
		File: "kvnode/client/options.go",
		Old:  "\t\treturn !r.GetSerializable()\n",
		New:  "\t\treturn true\n",
	},
	{
		Rule: "client", Name: "a promotion that the leader makes is answered in its name", Pkg: apiPkg, Test: "^TestWhatTheLeaderMustAnswerIsForwarded$",
		File: "kvnode/etcdapi/cluster.go",
		Old:  "\t\t\t\tresp.Header = s.header() // who answers is told by it\n",
		New:  "",
	},
}
