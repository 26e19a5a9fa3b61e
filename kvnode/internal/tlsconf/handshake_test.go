package tlsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/tlstest"
)

// connected returns both ends of a connection with buffers, so that two ends that both send an
// alert do not wait for each other.
func connected() (dialler, acceptor net.Conn, err error) {
	network := memlink.New()
	ln, err := network.Listen("server:1")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if dialler, err = network.Dial(context.Background(), "client", "server:1"); err != nil {
		return nil, nil, err
	}
	acceptor, err = ln.Accept()
	return dialler, acceptor, err
}

// shake runs a handshake and returns the errors of both ends. In TLS 1.3 the client's handshake
// ends before the server has checked its certificate.
func shake(client, server *tls.Config) (clientErr, serverErr error) {
	here, there, err := connected()
	if err != nil {
		return err, err
	}
	defer here.Close()
	done := make(chan error, 1)
	go func() {
		err := tls.Server(there, server).Handshake()
		_ = there.Close()
		done <- err
	}()
	clientErr = tls.Client(here, client).Handshake()
	if clientErr != nil {
		_ = here.Close()
	}
	return clientErr, <-done
}

func pair(t *testing.T, p tlstest.Pair) *tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func poolOf(authorities ...*tlstest.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range authorities {
		p.AppendCertsFromPEM(a.PEM)
	}
	return p
}

// kit is an authority with a server's files.
type kit struct {
	t   *testing.T
	ca  *tlstest.Authority
	dir string
	cfg Config
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{t: t, ca: tlstest.New(t, "ca"), dir: t.TempDir()}
	k.cfg.CertFile, k.cfg.KeyFile = k.ca.Issue([]string{"server"}).Write(k.dir, "own")
	return k
}

// mutual makes the kit require certificates.
func (k *kit) mutual() *kit {
	k.cfg.TrustedCAFile = tlstest.Write(k.t, k.dir, "ca", k.ca.PEM)
	return k
}

func (k *kit) source() *Source {
	k.t.Helper()
	s, err := New(k.cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

// Clients are accepted or refused as configured.
func TestClientCertificates(t *testing.T) {
	ca, other := tlstest.New(t, "ca"), tlstest.New(t, "other")
	revoked := ca.Issue([]string{"alice"}, tlstest.For("alice"))
	clients := map[string]*tlstest.Pair{
		"nobody":   nil,
		"alice":    new(ca.Issue([]string{"alice"}, tlstest.For("alice"))),
		"bob":      new(ca.Issue([]string{"bob"}, tlstest.For("bob"))),
		"revoked":  &revoked,
		"stranger": new(other.Issue([]string{"alice"}, tlstest.For("alice"))),
		"expired":  new(ca.Issue([]string{"alice"}, tlstest.For("alice"), tlstest.Expired)),
		"a server": new(ca.Issue([]string{"alice"}, tlstest.For("alice"), tlstest.Only(x509.ExtKeyUsageServerAuth))),
	}
	for _, test := range []struct {
		name string
		set  func(dir string, c *Config)
		in   string
	}{
		{"no certificates are asked for", func(string, *Config) {}, "nobody alice bob revoked stranger expired a server"},
		{"an authority", func(dir string, c *Config) { c.TrustedCAFile = tlstest.Write(t, dir, "ca", ca.PEM) }, "alice bob revoked"},
		{"two authorities", func(dir string, c *Config) {
			c.TrustedCAFile = tlstest.Write(t, dir, "ca", append(append([]byte(nil), ca.PEM...), other.PEM...))
		}, "alice bob revoked stranger"},
		{"a common name", func(dir string, c *Config) {
			c.TrustedCAFile, c.AllowedCNs = tlstest.Write(t, dir, "ca", ca.PEM), []string{"root", "alice"}
		}, "alice revoked"},
		{"a host name", func(dir string, c *Config) {
			c.TrustedCAFile, c.AllowedHostnames = tlstest.Write(t, dir, "ca", ca.PEM), []string{"bob"}
		}, "bob"},
		{"revocations", func(dir string, c *Config) {
			c.TrustedCAFile, c.CRLFile = tlstest.Write(t, dir, "ca", ca.PEM), tlstest.Write(t, dir, "crl", ca.Revoke(revoked.Serial))
		}, "alice bob"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			var cfg Config
			cfg.CertFile, cfg.KeyFile = ca.Issue([]string{"server"}).Write(dir, "own")
			test.set(dir, &cfg)
			source, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for name, shown := range clients {
				client := &tls.Config{RootCAs: poolOf(ca), ServerName: "server"}
				if shown != nil {
					cert := pair(t, *shown)
					client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
				}
				_, err := shake(client, source.Server("h2"))
				if in := strings.Contains(test.in, name); in != (err == nil) {
					t.Errorf("the handshake of %s = %v, want it accepted: %v", name, err, in)
				}
			}
		})
	}
}

// The certificate of a dialled server must be valid for the dialled host.
func TestDialledServers(t *testing.T) {
	k := newKit(t).mutual()
	other := tlstest.New(t, "other")
	k.cfg.Peers = true
	source := k.source()
	for name, test := range map[string]struct {
		shown tlstest.Pair
		want  string
	}{
		"the right one":       {k.ca.Issue([]string{"n2"}), ""},
		"another host":        {k.ca.Issue([]string{"n3"}), "not n2"},
		"another authority":   {other.Issue([]string{"n2"}), "unknown authority"},
		"expired":             {k.ca.Issue([]string{"n2"}, tlstest.Expired), "expired"},
		"a client":            {k.ca.Issue([]string{"n2"}, tlstest.Only(x509.ExtKeyUsageClientAuth)), "incompatible key usage"},
		"only a common name":  {k.ca.Issue(nil, tlstest.For("n2")), "SANs"},
		"an address of names": {k.ca.Issue([]string{"10.0.0.1"}), "n2"},
	} {
		err, _ := shake(source.Client("n2"), &tls.Config{Certificates: []tls.Certificate{*pair(t, test.shown)}})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: the handshake = %v, want %q", name, err, test.want)
		}
	}
}

// TLS below 1.2 is refused, even if the other end offers nothing newer.
func TestVersions(t *testing.T) {
	k := newKit(t)
	for _, test := range []struct {
		low, high string
		offer     uint16
		ok        bool
	}{
		{"", "", tls.VersionTLS11, false},
		{"", "", tls.VersionTLS12, true},
		{"", "", tls.VersionTLS13, true},
		{"TLS1.3", "", tls.VersionTLS12, false},
		{"TLS1.3", "", tls.VersionTLS13, true},
		{"TLS1.2", "TLS1.2", tls.VersionTLS13, false},
	} {
		k.cfg.MinVersion, k.cfg.MaxVersion = test.low, test.high
		client := &tls.Config{RootCAs: poolOf(k.ca), ServerName: "server", MinVersion: test.offer, MaxVersion: test.offer}
		if _, err := shake(client, k.source().Server()); (err == nil) != test.ok {
			t.Errorf("from %q to %q: a handshake in %s = %v, want success: %v", test.low, test.high, tls.VersionName(test.offer), err, test.ok)
		}
	}
}

// Only the configured cipher suites are used.
func TestCipherSuites(t *testing.T) {
	k := newKit(t)
	k.cfg.CipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}
	for suite, ok := range map[uint16]bool{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: true, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: false} {
		client := &tls.Config{RootCAs: poolOf(k.ca), ServerName: "server", MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}
		if _, err := shake(client, k.source().Server()); (err == nil) != ok {
			t.Errorf("a handshake with %s = %v, want success: %v", tls.CipherSuiteName(suite), err, ok)
		}
	}
}

// Sessions are never resumed: the authority may have changed.
func TestNoResumption(t *testing.T) {
	k := newKit(t).mutual()
	shown := pair(t, k.ca.Issue(nil))
	client := &tls.Config{
		RootCAs: poolOf(k.ca), ServerName: "server", Certificates: []tls.Certificate{*shown},
		ClientSessionCache: tls.NewLRUClientSessionCache(1), MaxVersion: tls.VersionTLS12,
	}
	server := k.source().Server()
	for range 2 {
		if a, b := shake(client, server); a != nil || b != nil {
			t.Fatalf("handshake = %v", errors.Join(a, b))
		}
	}
	if _, ok := client.ClientSessionCache.Get("server"); ok {
		t.Error("the server has sent a session ticket, want none")
	}
}

// Members negotiate their protocol. Both ends refuse a connection without it, even with the right
// certificates.
func TestMembersNegotiate(t *testing.T) {
	k := newKit(t).mutual()
	k.cfg.Peers = true
	source := k.source()
	for name, test := range map[string]struct {
		protocols []string
		ok        bool
	}{
		"what members speak": {[]string{PeerProtocol}, true},
		"that among others":  {[]string{"h2", PeerProtocol}, true},
		"something else":     {[]string{"h2"}, false},
		"nothing":            {nil, false},
	} {
		client := source.Client("server", test.protocols...)
		if _, err := shake(client, source.Server(PeerProtocol)); (err == nil) != test.ok {
			t.Errorf("a handshake of a client that negotiates %s = %v, want it accepted: %v", name, err, test.ok)
		}
		dialler, acceptor, err := connected()
		if err != nil {
			t.Fatal(err)
		}
		server := source.Server(test.protocols...)
		server.GetConfigForClient = nil
		server.Certificates = []tls.Certificate{*source.current().server}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = tls.Server(acceptor, server).Handshake() // the dialler's error is checked
			_ = acceptor.Close()
		}()
		dial := source.Dialer(func(context.Context, string) (net.Conn, error) { return dialler, nil })
		c, err := dial(t.Context(), "server:1")
		if (err == nil) != test.ok {
			t.Errorf("dialling a server that negotiates %s = %v, want it accepted: %v", name, err, test.ok)
		}
		if err == nil {
			_ = c.Close()
		}
		_ = dialler.Close()
		<-done
	}
}
