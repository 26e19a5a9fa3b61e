// Package listener has the listeners of a server: the URLs that it listens on, TLS, and
// the choice between gRPC and HTTP/1 on one port. Package connlimit limits what the
// connections cost.
//
//   - A connection on a URL with TLS that speaks plain text is closed.
//   - A connection has HandshakeTime to begin with requests.
//   - A request over plain HTTP is answered if it names a known host.
package listener
