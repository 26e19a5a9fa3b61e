package main

const vouchFile = "kvnode/vouch.go"

// vouching are bugs of whose word counts about a member that this one does not know,
// and of what whoever calls may cost.
var vouching = []Mutant{
	{
		Rule: "vouching", Name: "a stranger is remembered", Pkg: nodePkg, Test: "^TestStrangersLeaveNothingBehind$",
		File: "kvnode/peers.go",
		Old:  "\tm, err := n.peer(h.From)\n",
		New:  "\t_, _ = n.met.meet(h.From, h.Instance)\n\tm, err := n.peer(h.From)\n",
	},
	{
		Rule: "vouching", Name: "a stranger is let in, where it says that it is", Pkg: nodePkg, Test: "^TestStrangersLeaveNothingBehind$",
		File: "kvnode/peers.go",
		Old:  "\tm, err := n.peer(h.From)\n\tif err != nil {\n\t\treturn err\n\t}\n",
		New:  "\tm, err := n.peer(h.From)\n\tif err != nil {\n\t\tm.PeerURLs = []string{h.PeerURLs}\n\t}\n",
	},
	{
		Rule: "vouching", Name: "who was vouched for is dialled where it says", Pkg: nodePkg, Test: "^TestWhoIsAdmitted$",
		File: "kvnode/peers.go",
		Old:  "\t\tn.links.SetPeer(h.From, hostPorts(m.PeerURLs))\n",
		New:  "\t\tn.links.SetPeer(h.From, hostPorts([]string{h.PeerURLs}))\n",
	},
	{
		Rule: "vouching", Name: "strangers have members ask without a pause", Pkg: nodePkg, Test: "^TestStrangersLeaveNothingBehind$",
		File: vouchFile,
		Old:  "time.NewTimer(vouchPause)", New: "time.NewTimer(vouchPause / 100)",
	},
	{
		Rule: "vouching", Name: "nobody is asked", Pkg: nodePkg, Test: "^TestANewLeaderIsLetInWithinSeconds$",
		File: vouchFile,
		Old:  "\tcase n.vouchers.due <- struct{}{}:\n", New: "",
	},
	{
		Rule: "vouching", Name: "whom flags alone name always has a say", Pkg: nodePkg, Test: "^TestFlagsVouchOnlyForWantOfAMajority$",
		File: vouchFile,
		Old:  "\tif voters-away <= voters/2 {\n", New: "\tif voters-away <= voters {\n",
	},
	{
		Rule: "vouching", Name: "whom flags alone name never has a say", Pkg: nodePkg, Test: "^TestFlagsVouchOnlyForWantOfAMajority$",
		File: vouchFile,
		Old:  "\tif voters-away <= voters/2 {\n", New: "\tif voters-away < 0 {\n",
	},
	{
		Rule: "vouching", Name: "what was said for want of a majority stays", Pkg: nodePkg, Test: "^TestFlagsVouchOnlyForWantOfAMajority$",
		File: vouchFile,
		Old:  "\tn.vouchers.keep(known)\n", New: "",
	},
	{
		Rule: "vouching", Name: "another cluster vouches", Pkg: nodePkg, Test: "^TestRostersOfOtherClustersDoNotVouch$",
		File: vouchFile,
		Old:  "if err != nil || r.ClusterID != n.ClusterID() {", New: "if err != nil {",
	},
	{
		Rule: "vouching", Name: "a roster shows instances", Pkg: nodePkg, Test: "^TestARosterShowsNoInstance$",
		File: "kvnode/join.go",
		Old:  "\t\tall[i].Instance = digestOf(all[i].Instance)\n",
		New:  "\t\tall[i].Instance += \"\"\n",
	},
	{
		Rule: "vouching", Name: "a roster does not say who has started", Pkg: nodePkg, Test: "^TestARosterShowsNoInstance$",
		File: "kvnode/join.go",
		Old:  "\t\tall[i].Instance = digestOf(all[i].Instance)\n",
		New:  "\t\tall[i].Instance = \"\"\n",
	},
	{
		Rule: "vouching", Name: "an instance is not compared with a roster's", Pkg: nodePkg, Test: "^TestAMemberIsLetInOnceOthersVouchForIt$",
		File: "kvnode/instance.go",
		Old:  "\t\treturn known == digestOf(instance)\n", New: "\t\treturn instance != \"\"\n",
	},
	{
		Rule: "vouching", Name: "an instance is not compared with a former version's roster", Pkg: nodePkg, Test: "^TestInstancesAreRecognised$",
		File: "kvnode/instance.go",
		Old:  "\treturn known == \"\" || known == instance\n", New: "\treturn true\n",
	},
	{
		Rule: "vouching", Name: "a hello may be of any length", Pkg: transportPkg, Test: "^TestHellosRefusedWithoutAsking$",
		File: "kvnode/transport/handler.go",
		Old:  "\t\tif field.size > field.limit {\n", New: "\t\tif field.size > field.limit+1 {\n",
	},
	{
		Rule: "vouching", Name: "the packet of a hello may be as long as any", Pkg: transportPkg, Test: "^TestHellosHaveALimit$",
		File: "kvnode/transport/accept.go",
		Old:  "readPacket(in.conn, maxHello)", New: "readPacket(in.conn, maxPayload)",
	},
	{
		Rule: "vouching", Name: "who is not known tries again no sooner than who is refused for good", Pkg: transportPkg, Test: "^TestUnknownMembersTryAgainSoon$",
		File: "kvnode/transport/link.go",
		Old:  "\t\t\t\thigh = lim.retryMax // it asks the others, and soon knows\n", New: "\t\t\t\thigh = lim.refusedMax\n",
	},
	{
		Rule: "vouching", Name: "nobody says that one authority signs for both sides", Pkg: serverPkg, Test: "^TestOneAuthorityForBothIsSaid$",
		File: "kvnode/tlsconf/source.go",
		Old:  "\t\tif slices.ContainsFunc(b.loaded.Load().authorities, x.Equal) {\n",
		New:  "\t\tif slices.ContainsFunc(b.loaded.Load().authorities, x.Equal) && false {\n",
	},
}
