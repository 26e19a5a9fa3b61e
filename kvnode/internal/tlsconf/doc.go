// Package tlsconf makes TLS configurations out of files that may change while
// the process runs, for the two sides of a member: its clients and its peers.
//
// # What it promises
//
//   - Each handshake uses the newest files: within a second of a change new
//     connections see it, without a restart. Connections that exist go on.
//   - Files that do not make sense change nothing: what was loaded last stays in
//     use, a line is logged and Stats counts it.
//   - Nothing below TLS 1.2, and no cipher suite that Go calls insecure, is ever
//     spoken. Sessions are not resumed, so that no client is let in by what an
//     older authority said.
//   - With Config.TrustedCAFile whoever connects must show a certificate that
//     this authority has signed, that is not revoked, and whose names are
//     allowed. There is no way in without one.
//   - With Config.Peers, a peer that connects needs a certificate that is good for
//     servers and clients, unless Config.ClientCertFile gives members one of each.
//
// Which member a certificate is for is decided by package admission.
package tlsconf
