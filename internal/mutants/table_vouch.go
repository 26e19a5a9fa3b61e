package main

const vouchFile = "kvnode/vouch.go"

// vouching are bugs of whose word counts about a member that this one does not know,
// and of what whoever calls may cost.
var vouching = []Mutant{
	{
		Rule: "vouching", Name: "a stranger is remembered", Pkg: nodePkg, Test: "^TestStrangersLeaveNothingBehind$",
		File: "kvnode/peers.go",
		Old:  "\tm, err := p.node.book.peer(h.From)\n",
		New:  "\t_, _ = p.node.met.meet(h.From, h.Instance)\n\tm, err := p.node.book.peer(h.From)\n",
	},
	{
		Rule: "vouching", Name: "a stranger is let in, where it says that it is", Pkg: nodePkg, Test: "^TestStrangersLeaveNothingBehind$",
		File: "kvnode/peers.go",
		Old:  "\tm, err := p.node.book.peer(h.From)\n\tif err != nil {\n\t\treturn err\n\t}\n",
		New:  "\tm, err := p.node.book.peer(h.From)\n\tif err != nil {\n\t\tm.PeerURLs = []string{h.PeerURLs}\n\t}\n",
	},
	{
		Rule: "vouching", Name: "who was vouched for is dialled where it says", Pkg: nodePkg, Test: "^TestWhoIsAdmitted$",
		File: "kvnode/peers.go",
		Old:  "\treturn p.node.routes.add(h.From)\n",
		New:  "\tp.node.links.SetPeer(h.From, peerurl.HostPorts([]string{h.PeerURLs}))\n\treturn nil\n",
	},
	{
		Rule: "vouching", Name: "strangers have members ask without a pause", Pkg: nodePkg, Test: "^TestStrangersLeaveNothingBehind$",
		File: vouchFile,
		Old:  "time.NewTimer(vouchPause)", New: "time.NewTimer(vouchPause / 100)",
	},
	{
		Rule: "vouching", Name: "nobody is asked", Pkg: nodePkg, Test: "^TestANewLeaderIsLetInWithinSeconds$",
		File: "kvnode/vouchers.go",
		Old:  "{ v.due.put() }", New: "{}",
	},
	{
		Rule: "vouching", Name: "whom flags alone name always has a say", Pkg: nodePkg, Test: "^TestFlagsVouchOnlyForWantOfAMajority$",
		File: vouchFile,
		Old:  "\treturn there > voters/2\n", New: "\treturn there > voters\n",
		More: []Edit{{vouchFile, " || led || a.isLed() {", " || led && false {"}},
	},
	{
		Rule: "vouching", Name: "whom flags alone name never has a say", Pkg: nodePkg, Test: "^TestFlagsVouchOnlyForWantOfAMajority$",
		File: vouchFile,
		Old:  "\treturn there > voters/2\n", New: "\treturn true\n",
	},
	{
		Rule: "vouching", Name: "what was said for want of a majority stays", Pkg: nodePkg, Test: "^TestFlagsVouchOnlyForWantOfAMajority$",
		File: vouchFile,
		Old:  "\t\ta.book.keep(known)\n\t\treturn 0\n", New: "\t\treturn 0\n",
	},
	{
		Rule: "vouching", Name: "another cluster vouches", Pkg: nodePkg, Test: "^TestRostersOfOtherClustersDoNotVouch$",
		File: vouchFile,
		Old:  "if r.ClusterID != a.ClusterID() {", New: "if r.ClusterID == 0 {",
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
	{
		Rule: "vouching", Name: "a registered member is nowhere else", Pkg: nodePkg, Test: "^TestALeaderThatHasMovedIsLetIn$",
		File: "kvnode/book.go",
		Old:  "\t\tif !slices.Contains(m.PeerURLs, u) {\n", New: "\t\tif false {\n",
	},
	{
		Rule: "vouching", Name: "an old roster moves a member", Pkg: nodePkg, Test: "^TestOldRostersDoNotMoveMembers$",
		File: "kvnode/vouchers.go",
		Old:  "|| r.applied <= applied && (r.applied > 0 || registered) {", New: "|| r.applied < applied && (r.applied > 0 || registered) {",
	},
	{
		Rule: "vouching", Name: "flags vouch although there is a leader", Pkg: nodePkg, Test: "^TestFlagsDoNotVouchWhileThereIsALeader$",
		File: vouchFile,
		Old:  " || led || a.isLed() {", New: " || led && false {",
	},
	{
		Rule: "vouching", Name: "flags vouch at once", Pkg: nodePkg, Test: "^TestWhoFlagsLetInLeavesWithThem$",
		File: vouchFile,
		Old:  "lonely < minLonely {", New: "lonely < 1 {",
	},
	{
		Rule: "vouching", Name: "who is vouched for no more stays connected", Pkg: nodePkg, Test: "^TestWhoFlagsLetInLeavesWithThem$",
		File: "kvnode/links.go",
		Old:  "\t\t\tr.links.RemovePeer(p.ID)\n", New: "",
	},
	{
		Rule: "vouching", Name: "whoever is let in has a say", Pkg: nodePkg, Test: "^TestWhoFlagsLetInLeavesWithThem$",
		File: "kvnode/book.go",
		Old:  "\treturn known && !b.flagged(&m)\n", New: "\treturn known || !b.flagged(&m)\n",
	},
	{
		Rule: "vouching", Name: "whom flags lead to has a say", Pkg: nodePkg, Test: "^TestWhoHasASay$",
		File: "kvnode/vouchers.go",
		Old:  "\t\tif r.flags && slices", New: "\t\tif false && slices",
	},
	{
		Rule: "vouching", Name: "a hello may be too long for its packet", Pkg: transportPkg, Test: "^TestWhatValidateAcceptsFits$",
		File: "kvnode/transport/handler.go",
		Old:  "err == nil && len(data) > maxHello {", New: "err == nil && len(data) > 2*maxHello {",
	},
	{
		Rule: "vouching", Name: "who is not in the file is not let in", Pkg: nodePkg, Test: "^TestTheCheckpointRemembersToo$",
		File: "kvnode/peers.go",
		Old:  "\t\tfirst, err = h.Instance, nil // the", New: "\t\tfirst = h.Instance // the",
	},
	{
		Rule: "vouching", Name: "a roster has client URLs", Pkg: nodePkg, Test: "^TestARosterShowsNoInstance$",
		File: "kvnode/join.go",
		Old:  "\t\tall[i].ClientURLs = nil //", New: "\t\t//",
	},
	{
		Rule: "vouching", Name: "whom flags name goes as soon as it leads", Pkg: nodePkg, Test: "^TestFlagsLastUntilAMemberThatWasAwayKnowsTheOthers$",
		File: vouchFile,
		Old:  "\tcase a.book.isFlagged(lead):\n", New: "\tcase a.book.isFlagged(lead) && false:\n",
	},
	{
		Rule: "vouching", Name: "a leader that does not hear a member is enough", Pkg: nodePkg, Test: "^TestWhoIsLedButNotHeardAsksWhomFlagsName$",
		File: vouchFile,
		Old:  "p.ID == lead && p.Connected }", New: "p.ID == lead }",
	},
	{
		Rule: "vouching", Name: "who finds nobody waits until it is called", Pkg: nodePkg, Test: "^TestWhoFindsNobodyAsksAgain$",
		File: vouchFile,
		Old:  "a.routes.follow() || lonely > 0 {", New: "a.routes.follow() {",
	},
	{
		Rule: "vouching", Name: "flags do not say where registered members are", Pkg: nodePkg, Test: "^TestFlagsSayWhereMembersAreForWantOfAMajority$",
		File: vouchFile,
		Old:  "if there.ID != raft.None && answered[i] {", New: "if there.ID == raft.None && answered[i] {",
	},
	{
		Rule: "vouching", Name: "flags say where members are though nobody answers there", Pkg: nodePkg, Test: "^TestPlaced$",
		File: vouchFile,
		Old:  "if there.ID != raft.None && answered[i] {", New: "if there.ID != raft.None && i >= 0 {",
	},
	{
		Rule: "vouching", Name: "whoever answers counts as who was asked", Pkg: nodePkg, Test: "^TestWhoAnswersSaysWho$",
		File: vouchFile,
		Old:  "if r.From != 0 && m.ID != raft.None && r.From != m.ID {", New: "if r.From == 0 {",
	},
	{
		Rule: "vouching", Name: "members that have changed places make a majority", Pkg: nodePkg, Test: "^TestFlagsSayWhereMembersAreForWantOfAMajority$",
		File: "kvnode/join.go",
		Old:  "From: p.ID(), Members: data", New: "Members: data",
	},
	{
		Rule: "vouching", Name: "flags do not say who is where another one is registered", Pkg: nodePkg, Test: "^TestFlagsSayWhereMembersAreForWantOfAMajority$",
		File: vouchFile,
		Old:  " && (there[i] || k.Name == m.Name) {", New: " && i >= 0 {",
	},
	{
		Rule: "vouching", Name: "whoever is at the address of another one says nothing", Pkg: nodePkg, Test: "^TestWhoIsAtAnOldAddressSaysWhoIsThere$",
		File: vouchFile,
		Old:  "\t\ta.book.note(addr, said)\n\t\tif r.From", New: "\t\tif r.From == m.ID || m.ID == raft.None {\n\t\t\ta.book.note(addr, said)\n\t\t}\n\t\tif r.From",
	},
	{
		Rule: "vouching", Name: "where flags have members is forgotten before it is registered", Pkg: nodePkg, Test: "^TestFlagsSayWhereMembersAreForWantOfAMajority$",
		File: vouchFile,
		Old:  "bool { return a.book.isFlagged(m.ID) })", New: "bool { return a.book.isFlagged(m.ID) && false })",
		More: []Edit{{vouchFile, "\tcase a.book.isFlagged(lead):\n", "\tcase lead != a.book.self && a.book.isFlagged(lead):\n"}},
	},
}
