package tlsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/leaderlease/go/internal/tlstest"
)

// Leaf returns only a certificate that was verified.
func TestLeaf(t *testing.T) {
	ca := tlstest.New(t, "ca")
	for name, test := range map[string]struct {
		client *tls.Config
		want   string
	}{
		"verified":     {&tls.Config{RootCAs: poolOf(ca), ServerName: "n1"}, ""},
		"not verified": {&tls.Config{InsecureSkipVerify: true}, "no verified certificate"},
	} {
		here, there, err := connected()
		if err != nil {
			t.Fatal(err)
		}
		c, s := tls.Client(here, test.client), tls.Server(there, &tls.Config{Certificates: []tls.Certificate{*pair(t, ca.Issue([]string{"n1"}))}})
		done := make(chan error, 1)
		go func() { done <- s.Handshake() }()
		if err := errors.Join(c.Handshake(), <-done); err != nil {
			t.Fatal(err)
		}
		leaf, err := Leaf(c)
		if test.want == "" && (err != nil || leaf.VerifyHostname("n1") != nil) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: Leaf() = %v, %v, want %q", name, leaf, err, test.want)
		}
		_, _ = here.Close(), there.Close()
	}
	plain, _ := net.Pipe()
	if _, err := Leaf(plain); err == nil || !strings.Contains(err.Error(), "plain text") {
		t.Errorf("Leaf() of a pipe = %v, want an error about plain text", err)
	}
}

// A connecting peer needs a certificate for servers and clients. The error names the rule.
func TestConnectingPeers(t *testing.T) {
	ca, other := tlstest.New(t, "ca"), tlstest.New(t, "other")
	own := func(separate bool) *Source {
		dir := t.TempDir()
		cfg := Config{Peers: true, TrustedCAFile: tlstest.Write(t, dir, "ca", ca.PEM)}
		cfg.CertFile, cfg.KeyFile = ca.Issue([]string{"server"}).Write(dir, "own")
		if separate {
			cfg.ClientCertFile, cfg.ClientKeyFile = ca.Issue([]string{"server"}, tlstest.Only(x509.ExtKeyUsageClientAuth)).Write(dir, "client")
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, separate := own(false), own(true)
	client := ca.Issue([]string{"n2"}, tlstest.Only(x509.ExtKeyUsageClientAuth))
	for _, test := range []struct {
		name   string
		source *Source
		shown  *tlstest.Pair
		want   string
	}{
		{"a member's", one, new(ca.Issue([]string{"n2"})), ""},
		{"none", one, nil, "a peer must show a certificate"},
		{"of another authority", one, new(other.Issue([]string{"n2"})), "an authority in PeerTLS.TrustedCAFile"},
		{"expired", one, new(ca.Issue([]string{"n2"}, tlstest.Expired)), "must be valid now"},
		{"for clients only", one, &client, "serverAuth and clientAuth"},
		{"for clients only, where members have one of each", separate, &client, ""},
		{"for servers only, where members have one of each", separate, new(ca.Issue([]string{"n2"}, tlstest.Only(x509.ExtKeyUsageServerAuth))), "usage"},
	} {
		dialler, acceptor, err := connected()
		if err != nil {
			t.Fatal(err)
		}
		config := &tls.Config{RootCAs: poolOf(ca), ServerName: "server", NextProtos: []string{PeerProtocol}}
		if test.shown != nil {
			cert := pair(t, *test.shown)
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		}
		go func() { _ = tls.Client(dialler, config).Handshake() }() // the acceptor's error is checked
		l := test.source.Listener(&onlyOne{c: acceptor})
		c, err := l.Accept()
		if err == nil {
			shaker, ok := c.(interface {
				HandshakeContext(ctx context.Context) error
			})
			if !ok {
				t.Fatalf("the listener accepts a %T, which makes no handshake", c)
			}
			err = shaker.HandshakeContext(t.Context())
		}
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: the handshake = %v, want %q", test.name, err, test.want)
		}
		_, _ = dialler.Close(), acceptor.Close()
	}
}

// onlyOne accepts one connection.
type onlyOne struct {
	net.Listener
	c net.Conn
}

func (l *onlyOne) Accept() (net.Conn, error) { return l.c, nil }
