package main

const (
	tlsPkg       = "./kvnode/tlsconf"
	transportPkg = "./kvnode/transport"
	serverPkg    = "./kvnode/server"
)

// certificates are bugs of who is believed to be whom.
var certificates = []Mutant{
	{
		Rule: "peer", Name: "any member's certificate is each member's", Pkg: nodePkg, Test: "^TestWhoseCertificate$",
		File: "kvnode/certificate.go",
		Old:  "\terr := tlsconf.CheckHosts(conn, peerurl.Hosts(urls))\n",
		New:  "\terr := tlsconf.CheckHosts(conn, peerurl.Hosts(urls))\n\terr = nil\n",
	},
	{
		Rule: "peer", Name: "of a member that nobody has told of, what it says of itself counts", Pkg: nodePkg, Test: "^TestWhoseCertificate$",
		File: "kvnode/certificate.go",
		Old:  "\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\turls = m.PeerURLs\n",
		New:  "\t\tif err == nil {\n\t\t\turls = m.PeerURLs\n\t\t}\n",
	},
	{
		Rule: "peer", Name: "a member without a host is where it says that it is", Pkg: nodePkg, Test: "^TestWhoseCertificate$",
		File: "kvnode/certificate.go",
		Old:  "\t\turls = m.PeerURLs\n",
		New:  "\t\tif len(m.PeerURLs) > 0 {\n\t\t\turls = m.PeerURLs\n\t\t}\n",
	},
	{
		Rule: "peer", Name: "whoever does not say where it is need not be there", Pkg: nodePkg, Test: "^TestWhoseCertificate$",
		File: "kvnode/certificate.go",
		Old:  "\terr := tlsconf.CheckHosts(conn, peerurl.Hosts(urls))\n",
		New:  "\tif len(peerurl.Hosts(urls)) == 0 {\n\t\treturn nil\n\t}\n\terr := tlsconf.CheckHosts(conn, peerurl.Hosts(urls))\n",
	},
	{
		Rule: "peer", Name: "why a member is not known is not passed on", Pkg: serverPkg, Test: "^TestASignedCertificateWritesNothing$",
		File: "kvnode/transport/accept.go",
		Old:  "errors.AsType[*Refusal](err); ok || err == nil {\n\t\treturn r\n",
		New:  "errors.AsType[*Refusal](err); ok && false || err == nil {\n\t\treturn r\n",
	},
	{
		Rule: "peer", Name: "who dials is not identified", Pkg: transportPkg, Test: "^TestDiallersWithoutTheRightCertificate$",
		File: "kvnode/transport/accept.go",
		Old:  "\terr := t.cfg.Authenticate(in.conn, in.hello)\n",
		New:  "\terr := error(nil)\n",
	},
	{
		Rule: "peer", Name: "who answers is not identified, and its refusal counts", Pkg: transportPkg, Test: "^TestDialsThatLeadElsewhere$",
		File: "kvnode/transport/dial.go",
		Old:  "\tif err := t.cfg.Authenticate(c, Hello{ClusterID: t.cfg.Hello.ClusterID, From: id}); err != nil {\n",
		New:  "\tif err := error(nil); err != nil {\n",
	},
	{
		Rule: "peer", Name: "a message may say that another member has sent it", Pkg: transportPkg, Test: "^TestMessagesAreOfWhoeverIsConnected$",
		File: "kvnode/transport/receive.go",
		Old:  "\treturn Validate(m, in.from, in.t.self)\n",
		New:  "\treturn Validate(m, m.GetFrom(), in.t.self)\n",
	},
	{
		Rule: "peer", Name: "a member of another cluster is admitted", Pkg: transportPkg, Test: "^TestRefusals$",
		File: "kvnode/transport/accept.go",
		Old:  "\tcase h.ClusterID != t.cfg.Hello.ClusterID:\n",
		New:  "\tcase false:\n",
	},
	{
		Rule: "peer", Name: "who connects need not negotiate what members speak", Pkg: tlsPkg, Test: "^TestMembersNegotiate$",
		File: "kvnode/tlsconf/handshake.go",
		Old:  "\tif s.cfg.Peers && len(hello.SupportedProtos) == 0 {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "peer", Name: "who is dialled need not negotiate what members speak", Pkg: tlsPkg, Test: "^TestMembersNegotiate$",
		File: "kvnode/tlsconf/handshake.go",
		Old:  "\t\tif c.ConnectionState().NegotiatedProtocol != PeerProtocol {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "client", Name: "no certificate is required", Pkg: tlsPkg, Test: "^TestWhoIsLetIn$",
		File: "kvnode/tlsconf/handshake.go",
		Old:  "= tls.RequireAndVerifyClientCert, m.roots\n\t\tc.VerifyConnection",
		New:  "= tls.VerifyClientCertIfGiven, m.roots\n\t\t_",
	},
	{
		Rule: "client", Name: "a revoked certificate is taken", Pkg: tlsPkg, Test: "^TestWhoIsLetIn$",
		File: "kvnode/tlsconf/handshake.go",
		Old:  "\t\tif err := m.checkRevoked(chain); err != nil {\n",
		New:  "\t\tif err := m.checkRevoked(chain); err != nil && false {\n",
	},
	{
		Rule: "client", Name: "a list of revocations need not be signed", Pkg: tlsPkg, Test: "^TestBadFilesKeepTheOld$",
		File: "kvnode/tlsconf/crl.go",
		Old:  "\tif !signed(list, authorities) {\n",
		New:  "\tif false {\n",
	},
	{
		Rule: "client", Name: "a session is resumed after what let it in is gone", Pkg: tlsPkg, Test: "^TestNoResumption$",
		File: "kvnode/tlsconf/handshake.go",
		Old:  "\t\tNextProtos: protocols, SessionTicketsDisabled: true,\n\t\tCertificates:",
		New:  "\t\tNextProtos: protocols,\n\t\tCertificates:",
	},
	{
		Rule: "reload", Name: "changed files are not read", Pkg: tlsPkg, Test: "^TestANewAuthority$",
		File: "kvnode/tlsconf/source.go",
		Old:  "\t\t\ts.reloadLocked()\n",
		New:  "",
	},
	{
		Rule: "reload", Name: "a certificate that the others would refuse is taken over", Pkg: tlsPkg, Test: "^TestBadFilesKeepTheOld$",
		File: "kvnode/tlsconf/material.go",
		Old:  "\treturn m, c.checkOwn(m)\n",
		New:  "\treturn m, nil\n",
	},
	{
		Rule: "reload", Name: "an expired certificate is taken over", Pkg: tlsPkg, Test: "^TestBadFilesKeepTheOld$",
		File: "kvnode/tlsconf/material.go",
		Old:  "\tcase now.After(p.Leaf.NotAfter):\n",
		New:  "\tcase false:\n",
	},
}
