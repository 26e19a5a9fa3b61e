package main

const arrivalsPkg = "./kvnode/internal/arrivals"

// doors are bugs of what strangers may cost.
var doors = []Mutant{
	{
		Rule: "doors", Name: "a newcomer is turned away if all places are taken", Pkg: transportPkg, Test: "^TestStrangersKeepNobodyOut$",
		File: "kvnode/internal/arrivals/hall.go",
		Old:  "\t\tif unlucky == nil {\n\t\t\th.mu.shed++\n",
		New:  "\t\tif true {\n\t\t\th.mu.shed++\n",
	},
	{
		Rule: "doors", Name: "the newest guest makes room", Pkg: arrivalsPkg, Test: "^TestTheMostSilentIsCut$",
		File: "kvnode/internal/arrivals/pool.go",
		Old:  "g.alive < v.alive",
		New:  "g.alive > v.alive",
	},
	{
		Rule: "doors", Name: "what a guest has said does not count", Pkg: arrivalsPkg, Test: "^TestTheMostSilentIsCut$",
		File: "kvnode/internal/arrivals/guest.go",
		Old:  "\tg.alive = now + patience\n",
		New:  "\t_ = now\n",
	},
	{
		Rule: "doors", Name: "one host may take all places", Pkg: arrivalsPkg, Test: "^TestAHostKeepsItsShare$",
		File: "kvnode/internal/arrivals/pool.go",
		Old:  "(n <= p.share || g.owner == most) && ",
		New:  "(n < 0 || most != \"\") && ",
	},
	{
		Rule: "doors", Name: "strangers take the places of members", Pkg: transportPkg, Test: "^TestPlacesForPeers$",
		File: "kvnode/internal/arrivals/hall.go",
		Old:  "local || h.cfg.Known(host) {\n",
		New:  "local {\n",
	},
	{
		Rule: "doors", Name: "where a peer was dialled is forgotten", Pkg: transportPkg, Test: "^TestWherePeersAre$",
		File: "kvnode/transport/dial.go",
		Old:  "\t\tp.dialled.Store(hostAt(c))\n",
		New:  "\t\t_ = p\n",
	},
	{
		Rule: "doors", Name: "where a peer came from is forgotten", Pkg: transportPkg, Test: "^TestPlacesForPeers$",
		File: "kvnode/transport/accept.go",
		Old:  "\t\tp.came.Store(hostAt(c))\n",
		New:  "\t\t_ = p\n",
	},
	{
		Rule: "doors", Name: "handshakes that lead nowhere are not bounded", Pkg: arrivalsPkg, Test: "^TestHandshakesThatLeadNowhere$",
		File: "kvnode/internal/arrivals/pool.go",
		Old:  "\treturn p.all.empty(now, p.total) || p.tokensOf(owner).empty(now, p.perHost)\n",
		New:  "\treturn p.all.empty(now, p.total) && p.tokensOf(owner).empty(now, p.perHost)\n",
	},
	{
		Rule: "doors", Name: "handshakes that lead somewhere run out, too", Pkg: arrivalsPkg, Test: "^TestHandshakesThatLeadNowhere$",
		File: "kvnode/internal/arrivals/guest.go",
		Old:  "\t\tg.pool.refund(g.owner)\n",
		New:  "",
	},
	{
		Rule: "doors", Name: "peers' handshakes are asked for nothing", Pkg: transportPkg, Test: "^TestFailingHandshakesAreThrottled$",
		File: "kvnode/transport/accept.go",
		Old:  "c.HandshakeContext(in.guest.Context(context.Background()))",
		New:  "c.HandshakeContext(context.Background())",
	},
	{
		Rule: "doors", Name: "clients' handshakes are asked for nothing", Pkg: serverPkg, Test: "^TestFailingHandshakesAreThrottled$",
		File: "kvnode/server/frontdoor/entrance.go",
		Old:  "conn.HandshakeContext(a.guest.Context(context.Background()))",
		New:  "conn.Handshake()",
	},
	{
		Rule: "doors", Name: "a handshake is computed before anybody is asked", Pkg: serverPkg, Test: "^TestFailingHandshakesAreThrottled$",
		File: "kvnode/tlsconf/handshake.go",
		Old:  "\treturn arrivals.Work(hello.Context())\n",
		New:  "\t_ = arrivals.Work\n\treturn nil\n",
	},
	{
		Rule: "doors", Name: "connections that have introduced are not bounded by the file descriptors", Pkg: arrivalsPkg, Test: "^TestOpenConnections$",
		File: "kvnode/internal/arrivals/hall.go",
		Old:  "\tfull := h.cfg.Open > 0 && h.mu.open >= h.cfg.Open\n",
		New:  "\tfull := false\n",
	},
	{
		Rule: "doors", Name: "unix sockets are strangers", Pkg: arrivalsPkg, Test: "^TestWhoMakesNoHandshakes$",
		File: "kvnode/internal/arrivals/hall.go",
		Old:  "local || h.cfg.Known(host) {\n",
		New:  "local && false || h.cfg.Known(host) {\n",
	},
	{
		Rule: "doors", Name: "plain text is asked for a handshake's token", Pkg: arrivalsPkg, Test: "^TestWhoMakesNoHandshakes$",
		File: "kvnode/internal/arrivals/hall.go",
		Old:  "\tif secure && g.pool.dry(",
		New:  "\tif g.pool.dry(",
	},
	{
		Rule: "doors", Name: "members make room for members before strangers do", Pkg: arrivalsPkg, Test: "^TestStrangersMakeRoomFirst$",
		File: "kvnode/internal/arrivals/hall.go",
		Old:  "\t\tif g.pool == h.known && !crowded {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "doors", Name: "a connection that is closed counts for ever", Pkg: serverPkg, Test: "^TestClientsAreCounted$",
		File: "kvnode/internal/arrivals/conn.go",
		Old:  "\tc.guest.Leave()\n",
		New:  "",
	},
	{
		Rule: "doors", Name: "a client of gRPC that has begun may be cut", Pkg: serverPkg, Test: "^TestClientsAreCounted$",
		File: "kvnode/server/frontdoor/arrival.go",
		Old:  "\t\ta.guest.Introduce() // if it was cut, the next read says so\n",
		New:  "",
	},
	{
		Rule: "doors", Name: "a client of HTTP that has begun may be cut", Pkg: serverPkg, Test: "^TestClientsAreCounted$",
		File: "kvnode/server/frontdoor/hall.go",
		Old:  "\t\t\tarrivals.Of(c).Introduce() // if it was cut, the next read says so\n",
		New:  "",
	},
}
