package kvnode

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// talkTo returns this member's end of a connection to whoever shows a
// certificate.
func talkTo(t *testing.T, source *tlsconf.Source, shown tlstest.Pair) net.Conn {
	t.Helper()
	network := memlink.New()
	ln, err := network.Listen("n1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	pair, err := tls.X509KeyPair(shown.Cert, shown.Key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := network.Dial(t.Context(), "n2", "n1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	done := make(chan error, 1)
	go func() {
		done <- tls.Client(raw, &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{tlsconf.PeerProtocol},
		}).Handshake()
	}()
	c, err := source.Listener(ln).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	secured, ok := c.(interface {
		HandshakeContext(ctx context.Context) error
	})
	if !ok {
		t.Fatalf("Accept() = %T, want a TLS connection", c)
	}
	_ = secured.HandshakeContext(t.Context()) // what it is worth, authenticate says
	t.Log("the other end:", <-done)
	return c
}

// The certificate of a peer decides whether it may connect, and its hello does not.
func TestWhoseCertificate(t *testing.T) {
	ca := tlstest.New(t, "ca")
	dir := t.TempDir()
	cfg := tlsconf.Config{Peers: true, TrustedCAFile: tlstest.Write(t, dir, "ca", ca.PEM)}
	cfg.CertFile, cfg.KeyFile = ca.Issue([]string{"n1"}).Write(dir, "own")
	source, err := tlsconf.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	backend, err := boltdb.Open(filepath.Join(dir, "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	registry, err := store.Open(store.Config{Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	n := &Node{parts: parts{cfg: Config{PeerTLS: source}, store: registry}}
	n.book = book{store: registry, first: []store.Member{{ID: 1, PeerURLs: []string{"https://n1:1"}}, {ID: 2, PeerURLs: []string{"https://n2:1"}}}}
	for _, test := range []struct {
		name   string
		host   string
		member uint64
		says   string
		want   string
	}{
		{"a member's own", "n2", 2, "", ""},
		{"another member's", "n1", 2, "https://n2:1", "must be valid for"},
		{"an unknown member's, of a registered host", "n1", 9, "", ""},
		{"an unknown member's, that says it is at a registered host", "n9", 9, "https://n1:1", "is not registered here"},
	} {
		err := n.authenticate(talkTo(t, source, ca.Issue([]string{test.host})), transport.Hello{From: test.member, PeerURLs: test.says})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: authenticate(%s, %d) = %v, want %q", test.name, test.host, test.member, err, test.want)
		}
	}
	stranger := tlstest.New(t, "other")
	if err := n.authenticate(talkTo(t, source, stranger.Issue([]string{"n2"})), transport.Hello{From: 2}); err == nil {
		t.Error("authenticate() of another authority's certificate = nil, want an error")
	}
	plain, _ := net.Pipe()
	for _, member := range []uint64{2, 9} {
		if err := n.authenticate(plain, transport.Hello{From: member}); err == nil {
			t.Errorf("authenticate(plain text, %d) = nil, want an error", member)
		}
	}
}
