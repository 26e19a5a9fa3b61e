package tlsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
)

// Server returns a configuration for listeners with these protocols. Its handshakes
// use changed files (Source).
func (s *Source) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: s.versions.low, MaxVersion: s.versions.high,
		NextProtos: protocols, SessionTicketsDisabled: true,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if s.cfg.Peers && len(hello.SupportedProtos) == 0 {
				return nil, errNoProtocol
			}
			return s.server(s.current(), protocols), nil
		},
	}
}

// errNoProtocol ends a connection between members without a negotiated protocol.
// crypto/tls refuses other protocols.
var errNoProtocol = errors.New("the other end does not negotiate the protocol " + PeerProtocol + ", so it is not a member")

func (s *Source) server(m *material, protocols []string) *tls.Config {
	c := &tls.Config{
		MinVersion: s.versions.low, MaxVersion: s.versions.high, CipherSuites: s.versions.suites,
		NextProtos: protocols, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{*m.server},
		ClientAuth:   tls.NoClientCert,
	}
	if s.cfg.RequiresCert() {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, m.clientRoots
		c.VerifyConnection = func(state tls.ConnectionState) error {
			return errors.Join(s.verify(m, &state), s.checkPeerUsages(m, &state))
		}
	}
	return c
}

// checkPeerUsages checks that the certificate of a connecting peer has the usage serverAuth. crypto/tls has checked
// clientAuth. By default a member uses one certificate for both. If clients and peers share an authority, as with
// kubeadm, the certificates of clients usually have only clientAuth, so this check refuses them as peers. With
// ClientCertFile the check is not possible, because the peers may have separate certificates, too.
func (s *Source) checkPeerUsages(m *material, state *tls.ConnectionState) error {
	if !s.OneCertificate() || len(state.PeerCertificates) == 0 {
		return nil
	}
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: m.clientRoots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		err = &usageError{err}
	}
	return err
}

// OneCertificate reports whether members use one certificate as servers and as
// clients.
func (s *Source) OneCertificate() bool { return s.cfg.Peers && s.cfg.ClientCertFile == s.cfg.CertFile }

// usageError is the error of checkPeerUsages.
type usageError struct{ err error }

func (e *usageError) Error() string { return "the usage serverAuth is missing: " + e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// peerConn is a connection that a peer has dialled.
type peerConn struct{ *tls.Conn }

// HandshakeContext adds the rule that the peer's certificate breaks to the error.
func (c peerConn) HandshakeContext(ctx context.Context) error {
	err := c.Conn.HandshakeContext(ctx)
	if rule := peerRule(err); rule != "" {
		err = fmt.Errorf("%s: %w", rule, err)
	}
	return err
}

// peerRule returns the rule about certificates of peers that err reports as broken, or "".
func peerRule(err error) string {
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return "a peer's certificate must have the usages serverAuth and clientAuth, unless this member has PeerTLS.ClientCertFile"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "an authority in PeerTLS.TrustedCAFile must have signed a peer's certificate"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "a peer's certificate must be valid now"
	}
	if strings.Contains(err.Error(), "client didn't provide a certificate") { // crypto/tls has no type for it
		return "a peer must show a certificate"
	}
	return ""
}

// Client returns a configuration to connect to a host with these protocols. It uses
// the present files.
func (s *Source) Client(host string, protocols ...string) *tls.Config {
	m := s.current()
	c := &tls.Config{
		MinVersion: s.versions.low, MaxVersion: s.versions.high, CipherSuites: s.versions.suites,
		NextProtos: protocols, ServerName: host,
		Certificates: []tls.Certificate{*m.client},
		RootCAs:      m.serverRoots,
	}
	if s.cfg.Auto && m.serverRoots == nil {
		c.InsecureSkipVerify = true // the other end's certificate is self-signed, too
	}
	if s.cfg.Peers && m.clientRoots != nil {
		c.VerifyConnection = func(state tls.ConnectionState) error { return s.verify(m, &state) }
	}
	return c
}

// verify checks revocations and allowed names, after crypto/tls has checked the
// signatures.
func (s *Source) verify(m *material, state *tls.ConnectionState) error {
	if len(state.VerifiedChains) == 0 {
		return errors.New("the certificate was not verified") // a bug of this package
	}
	for _, chain := range state.VerifiedChains {
		if err := m.checkRevoked(chain); err != nil {
			return err
		}
	}
	leaf := state.PeerCertificates[0]
	if names := s.cfg.AllowedCNs; len(names) > 0 && !slices.Contains(names, leaf.Subject.CommonName) {
		return fmt.Errorf("certificate with common name %q, want one of %q", leaf.Subject.CommonName, names)
	}
	if hosts := s.cfg.AllowedHostnames; len(hosts) > 0 && !validFor(leaf, hosts) {
		return fmt.Errorf("certificate for %q, want one for any of %q", names(leaf), hosts)
	}
	return nil
}

// Leaf returns the verified certificate of the other end of c.
func Leaf(c net.Conn) (*x509.Certificate, error) {
	secured, ok := c.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil, errors.New("the connection is plain text")
	}
	state := secured.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return nil, errors.New("the other end has no verified certificate")
	}
	return state.PeerCertificates[0], nil
}

func validFor(leaf *x509.Certificate, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(host string) bool { return leaf.VerifyHostname(host) == nil })
}

// names returns the host names and addresses of a certificate.
func names(leaf *x509.Certificate) []string {
	all := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// PeerProtocol is the ALPN protocol between members. A member requires it, so it does not take another service with
// the same certificates for a member.
const PeerProtocol = "leaderlease-peer"

// Listener returns l with TLS, for peers. The handshake happens in HandshakeContext or, without a call of it, at the
// first read from the connection.
func (s *Source) Listener(l net.Listener) net.Listener {
	return &peerListener{l, s.Server(PeerProtocol)}
}

type peerListener struct {
	net.Listener
	config *tls.Config
}

// Accept implements net.Listener.
func (l *peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{tls.Server(c, l.config)}, nil
}

// DialFunc connects to an address, host:port.
type DialFunc = func(ctx context.Context, addr string) (net.Conn, error)

// Dialer returns dial with TLS, for peers. The other end's certificate must be
// valid for the host that is dialled.
func (s *Source) Dialer(dial DialFunc) DialFunc {
	if dial == nil {
		var d net.Dialer
		dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, s.Client(host, PeerProtocol))
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the handshake's error is returned
			if errors.Is(err, io.EOF) {
				return nil, errors.New("TLS handshake: the peer closed the connection (it may expect plain text)")
			}
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		if c.ConnectionState().NegotiatedProtocol != PeerProtocol {
			_ = raw.Close() // as above
			return nil, fmt.Errorf("TLS handshake: %w", errNoProtocol)
		}
		return c, nil
	}
}
