package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// A client without a valid certificate gets no answer from any method or page.
func TestNothingIsServedWithoutACertificate(t *testing.T) {
	t.Run("HTTP on its own", func(t *testing.T) { checkUnauthenticated(t, func(*Config) {}) })
	t.Run("one port", func(t *testing.T) { checkUnauthenticated(t, onePort) })
}

func checkUnauthenticated(t *testing.T, change func(*Config)) {
	t.Helper()
	f := newFiles(t)
	other := tlstest.New(t, "other")
	s := solo(t, change, f.mutual, func(c *Config) { c.EnablePprof = true; c.ListenMetricsURLs = []string{"https://" + free(t)} })
	for name, cfg := range map[string]*tls.Config{
		"none":                f.trusting(),
		"another authority's": f.trusting(other.Issue(nil)),
		"expired":             f.trusting(f.ca.Issue(nil, tlstest.Expired)),
		"not for clients":     f.trusting(f.ca.Issue(nil, tlstest.Only(x509.ExtKeyUsageServerAuth))),
	} {
		unauthenticatedGetsNothing(t, s, name, cfg)
	}
	if n := started(t, s); n != 0 {
		t.Errorf("%v requests have reached the server, want none", n)
	}
	for _, addr := range []string{s.HTTPAddrs()[0], s.ClientAddrs()[0]} {
		if _, body, _ := securePage(t, http.MethodGet, "http://"+addr+"/health", nil); strings.Contains(body, "health\":") {
			t.Errorf("GET http://…/health = %s, want no answer to plain text", body)
		}
	}
	checkAuthenticated(t, s, f.trusting(f.ca.Issue(nil)))
}

// unauthenticatedGetsNothing calls all methods and pages with an invalid certificate.
func unauthenticatedGetsNothing(t *testing.T, s *Server, name string, cfg *tls.Config) {
	t.Helper()
	conn := secureConn(t, s, cfg)
	methods := 0
	for service, info := range s.grpc.GetServiceInfo() {
		if testing.Short() && name != "none" {
			info.Methods = info.Methods[:1] // each call is a handshake that takes long with -race
		}
		for _, m := range info.Methods {
			methods++
			err := call(t.Context(), conn, "/"+service+"/"+m.Name, m)
			if grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("certificate %s: %s/%s = %v, want no connection", name, service, m.Name, err)
			}
		}
	}
	if methods < 40 && (!testing.Short() || name == "none") {
		t.Errorf("certificate %s: %d methods were called, want 40 at least", name, methods)
	}
	for _, base := range []string{"https://" + s.HTTPAddrs()[0], "https://" + s.MetricsAddrs()[0]} {
		for _, path := range []string{"/health", "/metrics", "/version", "/livez", "/readyz", "/status", "/v3/kv/put", "/debug/pprof/", "/"} {
			if code, body, err := securePage(t, http.MethodPost, base+path, cfg); err == nil {
				t.Errorf("certificate %s: %s = %d %s, want no connection", name, path, code, body)
			}
		}
	}
}

// checkAuthenticated checks that the same calls reach the server with a valid certificate.
func checkAuthenticated(t *testing.T, s *Server, good *tls.Config) {
	t.Helper()
	conn := secureConn(t, s, good)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	var methods []string
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			name := service + "/" + m.Name
			methods = append(methods, name)
			calls.Go(func() { _ = call(ctx, conn, "/"+name, m) })
		}
	}
	until(t, "all requests have reached the server", func() bool { return started(t, s) >= float64(len(methods)) })
	cancel() // some would never end
	calls.Wait()
	counts := startedByMethod(t, s)
	for _, name := range methods {
		if n := counts[name]; n != 1 {
			t.Errorf("with a certificate: %s reached the server %v times, want once", name, n)
		}
	}
	if code, body, err := securePage(t, http.MethodPost, "https://"+s.HTTPAddrs()[0]+"/v3/kv/put", good); code != http.StatusOK {
		t.Errorf("POST /v3/kv/put with a certificate = %d %s %v, want 200", code, body, err)
	}
}

// Three members with certificates form a cluster and forward requests to the leader.
func TestAClusterWithMutualTLS(t *testing.T) {
	f := newFiles(t)
	all := trio(t, f.mutual)
	for _, s := range all {
		c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientAddrs(), TLS: f.trusting(f.ca.Issue(nil)), DialTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "key", s.cfg.Node.Name); err != nil {
			t.Errorf("Put at %s: %v", s.cfg.Node.Name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if lease, err := c.Grant(ctx, 60); err != nil {
			t.Errorf("Grant at %s: %v", s.cfg.Node.Name, err)
		} else if _, err := c.KeepAliveOnce(ctx, lease.ID); err != nil {
			t.Errorf("KeepAliveOnce at %s: %v", s.cfg.Node.Name, err)
		}
		cancel()
		_ = c.Close()
	}
}

// Changes of the certificates, and then of the authority, do not affect writers. An invalid file
// changes nothing and is counted.
func TestCertificatesChangeUnderLoad(t *testing.T) {
	f := newFiles(t)
	all := trio(t, f.mutual)
	next := tlstest.New(t, "next")
	both := append(append([]byte(nil), f.ca.PEM...), next.PEM...)
	mine := f.trusting(f.ca.Issue(nil))
	var endpoints []string
	for _, s := range all {
		endpoints = append(endpoints, s.ClientAddrs()...)
	}
	writer, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: mine, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	terms := all[0].Node().Term()
	settle := func(what, name string, atLeast float64) {
		t.Helper()
		putUntil(t, writer, what, func() bool { return tlsCounts(t, all, name, atLeast) })
	}
	tlstest.Write(t, f.dir, "ca.crt", both)
	settle("the authorities change", "reloads", 1)
	next.Issue(loopbackHosts).Write(f.dir, "member")
	settle("the certificate changes", "reloads", 2)
	tlstest.Write(t, f.dir, "member.crt", []byte("garbage"))
	settle("the certificate is garbage", "failures", 1)
	next.Issue(loopbackHosts).Write(f.dir, "member")
	settle("the certificate is good again", "reloads", 3)

	// New connections see the new certificate.
	conn, err := tls.Dial("tcp", all[0].ClientAddrs()[0], &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, GetClientCertificate: mine.GetClientCertificate,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().PeerCertificates[0].Issuer.CommonName; got != "next" {
		t.Errorf("a new connection sees a certificate of %q, want of next", got)
	}
	if got := all[0].Node().Term(); got != terms {
		t.Errorf("Term() = %d after the changes, want %d: no election", got, terms)
	}
}

// putUntil writes until done, and fails on an error.
func putUntil(t *testing.T, c *clientv3.Client, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if _, err := c.Put(t.Context(), "key", what); err != nil {
			t.Fatalf("Put while %s: %v", what, err)
		}
		if done() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v have passed while %s", patience, what)
		}
	}
}

// tlsCounts reports whether both sides of all servers have counted kvnode_tls_NAME at least this
// often. A half-written file, or a certificate without its key, may count as a failure.
func tlsCounts(t *testing.T, all []*Server, name string, atLeast float64) bool {
	t.Helper()
	for _, s := range all {
		families, err := s.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sides := 0
		for _, family := range families {
			if !strings.HasPrefix(family.GetName(), "kvnode_tls_") || !strings.Contains(family.GetName(), name) {
				continue
			}
			for _, m := range family.GetMetric() {
				if m.GetCounter().GetValue() >= atLeast {
					sides++
				}
			}
		}
		if sides != 2 {
			return false
		}
	}
	return true
}

// A self-signed certificate encrypts the connections, and its files are where etcd keeps them.
func TestAutoTLS(t *testing.T) {
	all := trio(t, func(c *Config) { c.ClientTLS.Auto, c.PeerTLS.Auto = true, true }, securePeers)
	c, err := clientv3.New(clientv3.Config{Endpoints: all[0].ClientAddrs(), TLS: &tls.Config{InsecureSkipVerify: true}, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, s := range all {
		c.SetEndpoints(s.ClientAddrs()...)
		if _, err := c.Put(t.Context(), "key", "value"); err != nil {
			t.Errorf("Put at %s: %v", s.cfg.Node.Name, err)
		}
		for _, side := range []string{"client", "peer"} {
			if _, err := os.Stat(filepath.Join(s.cfg.Node.DataDir, "fixtures", side, "cert.pem")); err != nil {
				t.Error(err)
			}
		}
	}
}

// One member may listen with and without TLS.
func TestBothKindsOfURL(t *testing.T) {
	f := newFiles(t)
	secure, plain, metrics := free(t), free(t), free(t)
	s := solo(t, func(c *Config) {
		c.closeListeners()
		c.ClientListener, c.HTTPListener = nil, nil
		c.Node.Listener = ephemeral(t)
		c.ListenClientURLs = []string{"https://" + secure, "http://" + plain}
		c.ListenMetricsURLs = []string{"http://" + metrics}
		c.ClientTLS = tlsconf.Config{CertFile: f.cert, KeyFile: f.key}
	})
	for endpoint, cfg := range map[string]*tls.Config{"https://" + secure: f.trusting(), "http://" + plain: nil} {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: cfg, DialTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "key", "value"); err != nil {
			t.Errorf("Put at %s: %v", endpoint, err)
		}
		_ = c.Close()
	}
	if code, _, err := securePage(t, http.MethodGet, "http://"+s.MetricsAddrs()[0]+"/metrics", nil); code != http.StatusOK {
		t.Errorf("GET /metrics in plain text = %d, %v, want 200", code, err)
	}
}

// Warnings do not repeat what Validate rejects.
func TestWarningsAreOfWhatIsAllowed(t *testing.T) {
	c := Config{
		ListenClientURLs: []string{"https://a:1", "http://0.0.0.0:2", "http://127.0.0.1:3", "unix:///a"},
		ClientTLS:        tlsconf.Config{CertFile: "a", KeyFile: "a", TrustedCAFile: "a"},
	}
	if all := c.Warnings(); len(all) != 2 || !strings.Contains(all[0], " http://127.0.0.1:3 ") || !strings.Contains(all[1], " unix:///a ") {
		t.Errorf("Warnings() = %q, want one of http://127.0.0.1:3 and one of unix:///a", all)
	}
}

// As in etcd, a URL without certificates on this machine is allowed beside one that requires
// them, with a warning.
func TestPlainTextBesideCertificates(t *testing.T) {
	f := newFiles(t)
	secure, plain := free(t), free(t)
	var log bytes.Buffer
	s := solo(t, on("https://"+secure, "http://"+plain), func(c *Config) {
		c.ClientTLS = tlsconf.Config{CertFile: f.cert, KeyFile: f.key, TrustedCAFile: f.in, ClientCertAuth: true}
		c.ListenMetricsURLs = []string{"http://" + free(t)}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	for endpoint, cfg := range map[string]*tls.Config{"https://" + secure: f.trusting(f.ca.Issue(nil)), "http://" + plain: nil} {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: cfg, DialTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "key", "value"); err != nil {
			t.Errorf("Put at %s: %v", endpoint, err)
		}
		_ = c.Close()
	}
	if err := call(t.Context(), secureConn(t, s, f.trusting()), "/etcdserverpb.KV/Range", grpc.MethodInfo{}); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("Range without a certificate = %v, want no connection", err)
	}
	stop(t, s)
	if n := strings.Count(log.String(), "accepts every client on this machine"); n != 1 || !strings.Contains(log.String(), "ListenClientURLs http://"+plain) {
		t.Errorf("the log warns %d times, want once, of http://%s:\n%s", n, plain, log.String())
	}
}

// files are certificate files that all members of a test share.
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
	for _, calls := range startedByMethod(t, s) {
		n += calls
	}
	return n
}

// startedByMethod returns how many requests have reached the server, by service/method.
func startedByMethod(t *testing.T, s *Server) map[string]float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "grpc_server_started_total" {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				counts[labels["grpc_service"]+"/"+labels["grpc_method"]] += m.GetCounter().GetValue()
			}
		}
	}
	return counts
}

// trusting returns a client's TLS configuration, with a certificate if one is passed.
func (f *files) trusting(shown ...tlstest.Pair) *tls.Config {
	f.t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(f.ca.PEM)
	if len(shown) > 0 {
		pair, err := tls.X509KeyPair(shown[0].Cert, shown[0].Key)
		if err != nil {
			f.t.Fatal(err)
		}
		// Send it even if the server names other authorities.
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

// call calls any method with a request that may be invalid, and returns the error: for a stream,
// that of the first answer.
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
