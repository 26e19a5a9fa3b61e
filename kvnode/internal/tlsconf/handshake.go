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

// Server returns a configuration for listeners, which offers the protocols. It
// follows the files.
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

// errNoProtocol ends a connection between members on which nothing is negotiated,
// as PeerProtocol promises. That something else is, crypto/tls refuses.
var errNoProtocol = errors.New("the other end does not negotiate " + PeerProtocol + ", as members do")

func (s *Source) server(m *material, protocols []string) *tls.Config {
	c := &tls.Config{
		MinVersion: s.versions.low, MaxVersion: s.versions.high, CipherSuites: s.versions.suites,
		NextProtos: protocols, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{*m.server},
		ClientAuth:   tls.NoClientCert,
	}
	if s.cfg.RequiresCert() {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, m.roots
		c.VerifyConnection = func(state tls.ConnectionState) error {
			return errors.Join(s.verify(m, &state), s.checkPeerUsages(m, &state))
		}
	}
	return c
}

// checkPeerUsages checks that the certificate of a peer that connects is good for servers. crypto/tls has checked that
// it is good for clients. Members show one certificate for both. An authority that signs for clients as well gives
// clients certificates for clients only (kubeadm does), so those are no peers'. A member with a ClientCertFile cannot
// tell: its peers have certificates for clients only as well.
func (s *Source) checkPeerUsages(m *material, state *tls.ConnectionState) error {
	if !s.OneCertificate() || len(state.PeerCertificates) == 0 {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: m.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		err = &usageError{err}
	}
	return err
}

// OneCertificate reports whether members show the same certificate when they connect and when they are connected to.
func (s *Source) OneCertificate() bool { return s.cfg.Peers && s.cfg.ClientCertFile == s.cfg.CertFile }

// usageError is the error of checkPeerUsages.
type usageError struct{ err error }

func (e *usageError) Error() string { return "it is not good for serverAuth: " + e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// peerConn is a connection that a peer has made.
type peerConn struct{ *tls.Conn }

// HandshakeContext adds the rule to the error that the peer's certificate has failed by.
func (c peerConn) HandshakeContext(ctx context.Context) error {
	err := c.Conn.HandshakeContext(ctx)
	if rule := peerRule(err); rule != "" {
		err = fmt.Errorf("%s: %w", rule, err)
	}
	return err
}

// peerRule returns the rule for the certificates of peers that err says is not met, "" if it says something else.
func peerRule(err error) string {
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return "a peer's certificate must be good for serverAuth and clientAuth, unless this member has PeerTLS.ClientCertFile"
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

// Client returns a configuration to connect to a host with, as of now. The
// protocols are offered.
func (s *Source) Client(host string, protocols ...string) *tls.Config {
	m := s.current()
	c := &tls.Config{
		MinVersion: s.versions.low, MaxVersion: s.versions.high, CipherSuites: s.versions.suites,
		NextProtos: protocols, ServerName: host,
		Certificates: []tls.Certificate{*m.client},
		RootCAs:      m.dialled,
	}
	if s.cfg.Auto && m.dialled == nil {
		c.InsecureSkipVerify = true // nobody has signed the other end's certificate either
	}
	if s.cfg.Peers && m.roots != nil {
		c.VerifyConnection = func(state tls.ConnectionState) error { return s.verify(m, &state) }
	}
	return c
}

// verify checks what crypto/tls does not, after it has checked the signatures.
func (s *Source) verify(m *material, state *tls.ConnectionState) error {
	if len(state.VerifiedChains) == 0 {
		return errors.New("the certificate was not verified") // a slip in this package
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

// Leaf returns the certificate at the other end of c, which the handshake has verified.
func Leaf(c net.Conn) (*x509.Certificate, error) {
	secured, ok := c.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil, errors.New("the connection is plain text")
	}
	state := secured.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return nil, errors.New("no verified certificate was shown")
	}
	return state.PeerCertificates[0], nil
}

func validFor(leaf *x509.Certificate, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(host string) bool { return leaf.VerifyHostname(host) == nil })
}

// names are what a certificate is for.
func names(leaf *x509.Certificate) []string {
	all := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// PeerProtocol is what members negotiate, so that nothing else that the same
// certificates serve can be taken for a member.
const PeerProtocol = "leaderlease-peer"

// Listener returns l with TLS, for peers. The handshake happens at the first read
// from a connection, or before in HandshakeContext.
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
			_ = raw.Close() // nothing was said
			if errors.Is(err, io.EOF) {
				return nil, errors.New("TLS handshake: the peer closed the connection; does it expect plain text?")
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
