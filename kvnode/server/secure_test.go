package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// files are certificates on disk that all members of a test share.
type files struct {
	t             *testing.T
	ca            *tlstest.Authority
	dir           string
	cert, key, in string // in has the authorities
}

var loopbackHosts = []string{"127.0.0.1", "localhost"}

func newFiles(t *testing.T) *files {
	t.Helper()
	f := &files{t: t, ca: tlstest.New(t, "ca"), dir: t.TempDir()}
	f.cert, f.key = f.ca.Issue(loopbackHosts).Write(f.dir, "member")
	f.in = tlstest.Write(t, f.dir, "ca.crt", f.ca.PEM)
	return f
}

// mutual is TLS with certificates on both sides.
func (f *files) mutual(c *Config) {
	side := tlsconf.Config{CertFile: f.cert, KeyFile: f.key, TrustedCAFile: f.in, ClientCertAuth: true}
	c.ClientTLS, c.PeerTLS = side, side
	securePeers(c)
}

// securePeers makes the peer URLs of a cluster https.
func securePeers(c *Config) {
	c.Node.Cluster = slices.Clone(c.Node.Cluster)
	for i := range c.Node.Cluster {
		m := &c.Node.Cluster[i]
		m.PeerURLs = []string{strings.Replace(m.PeerURLs[0], "http:", "https:", 1)}
	}
}

// started returns how many requests have reached the server.
func started(t *testing.T, s *Server) (n float64) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "grpc_server_started_total" {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// untilStarted waits until n requests have reached the server, or more.
func untilStarted(t *testing.T, s *Server, n float64) {
	t.Helper()
	for deadline := time.Now().Add(patience); started(t, s) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v requests have reached the server in %v, want %v", started(t, s), patience, n)
		}
	}
}

// trusting is a client that shows the pairs.
func (f *files) trusting(shown ...tlstest.Pair) *tls.Config {
	f.t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(f.ca.PEM)
	if len(shown) > 0 {
		pair, err := tls.X509KeyPair(shown[0].Cert, shown[0].Key)
		if err != nil {
			f.t.Fatal(err)
		}
		// Whatever authorities the server names, this is what is shown.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg
}

func secureConn(t *testing.T, s *Server, cfg *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.ClientAddrs()[0], grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// securePage fetches a path of a listener with TLS.
func securePage(t *testing.T, method, url string, cfg *tls.Config) (code int, body string, err error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(`{"key":"Zm9v","value":"YmFy"}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// call calls any method, which need not like the request, and returns how that
// ends: for a stream, how the first answer does.
func call(ctx context.Context, conn *grpc.ClientConn, method string, m grpc.MethodInfo) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !m.IsClientStream && !m.IsServerStream {
		return conn.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty))
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err == nil {
		err = stream.SendMsg(new(emptypb.Empty))
	}
	if err == nil || err == io.EOF { //nolint:errorlint // grpc's own convention: the reason is in RecvMsg
		err = stream.RecvMsg(new(emptypb.Empty))
	}
	return err
}
