package kvnode

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
	"github.com/leaderlease/go/kvnode/tlsconf"
	"github.com/leaderlease/go/kvnode/tlsconf/tlstest"
	"github.com/leaderlease/go/kvnode/transport"
	"github.com/leaderlease/go/kvnode/transport/memlink"
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
	secured, ok := c.(*tls.Conn)
	if !ok {
		t.Fatalf("Accept() = %T, want a TLS connection", c)
	}
	_ = secured.Handshake() // what it is worth, authenticate says
	t.Log("the other end:", <-done)
	return secured
}

// A certificate is a member's if it is valid for where that one is registered;
// before the registry knows it, for where it was when this member began, or where
// those say who have vouched for it. What it says itself counts for members of other
// clusters only.
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
	n.id.ClusterID = 1
	n.book.note("n1:1", roster{members: []store.Member{{ID: 4, PeerURLs: []string{"https://n4:1"}}, {ID: 5}}})
	n.book.store, n.book.first = registry, []store.Member{
		{ID: 1, PeerURLs: []string{"https://n1:1"}},
		{ID: 2, PeerURLs: []string{"https://n2:1", "https://10.0.0.2:1"}},
		{ID: 3, PeerURLs: []string{"https://[::3]:1"}},
	}
	const foreigner = 0 // a member of another cluster, under the ID of one of this
	for _, test := range []struct {
		name   string
		hosts  []string
		member uint64
		want   string
		says   string
	}{
		{"its first host", []string{"n2"}, 2, "", ""},
		{"its second host", []string{"10.0.0.2"}, 2, "", ""},
		{"an IPv6 address", []string{"::3"}, 3, "", ""},
		{"another member's", []string{"n2"}, 3, "want one for any of", "https://n2:1"},
		{"nobody's", []string{"n9"}, 2, "want one for any of", ""},
		{"nobody's, for no host", nil, 2, "want one for any of", ""},
		{"one that was vouched for", []string{"n4"}, 4, "", ""},
		{"elsewhere than those say who vouch for it", []string{"n9"}, 4, "want one for any of", "https://n9:1"},
		{"one without a host", []string{"n5"}, 5, "want one for any of", "https://n5:1"},
		{"a member that nobody has told of", []string{"n9"}, 9, "not known", "https://n9:1"},
		{"one that says it is elsewhere", []string{"n9"}, 9, "not known", "https://n2:1"},
		{"one that does not say where it is", []string{"n9"}, 9, "not known", ""},
		{"another cluster's", []string{"n9"}, foreigner, "", "https://n9:1"},
		{"another cluster's that is elsewhere", []string{"n9"}, foreigner, "want one for any of", "https://n2:1"},
		{"another cluster's that does not say where it is", []string{"n9"}, foreigner, "want one for any of", ""},
	} {
		hello := transport.Hello{ClusterID: 1, From: test.member, PeerURLs: test.says}
		if test.member == foreigner {
			hello.ClusterID, hello.From = 2, 2
		}
		err := n.authenticate(talkTo(t, source, ca.Issue(test.hosts)), hello)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: authenticate(%v, %d) = %v, want %q", test.name, test.hosts, test.member, err, test.want)
		}
	}
	stranger := tlstest.New(t, "other")
	if err := n.authenticate(talkTo(t, source, stranger.Issue([]string{"n2"})), transport.Hello{ClusterID: 1, From: 2}); err == nil {
		t.Error("authenticate() of another authority's certificate = nil, want an error")
	}
	plain, _ := net.Pipe()
	for _, member := range []uint64{2, 9} {
		if err := n.authenticate(plain, transport.Hello{ClusterID: 1, From: member}); err == nil {
			t.Errorf("authenticate(plain text, %d) = nil, want an error", member)
		}
	}
}
