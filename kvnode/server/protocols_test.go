package server

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
)

// serving serves both protocols of a client port. connect returns an in-memory connection to it.
func serving(t *testing.T, e *listener.Endpoint, secure bool) (connect func() net.Conn) {
	t.Helper()
	accepted := listener.NewPushListener()
	s := grpc.NewServer(e.Options(func(net.Addr, string) error { return nil })...)
	p := newPages(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(time.Hour)
		}
	}), slog.New(slog.DiscardHandler))
	served := make(chan struct{}, 2)
	go func() { _ = s.Serve(e.ForGRPC(accepted, secure)); served <- struct{}{} }()
	go func() { _ = p.Serve(e.Pages()); served <- struct{}{} }()
	t.Cleanup(func() {
		e.End()
		s.Stop()
		_ = p.Close()
		<-served
		<-served
	})
	return func() net.Conn {
		near, far := net.Pipe()
		if err := accepted.Push(far); err != nil {
			t.Fatal(err)
		}
		return near
	}
}

// A connection without requests is closed at its time limit, and not before.
func TestSlowConnections(t *testing.T) {
	f := newFiles(t)
	source, err := tlsconf.New(tlsconf.Config{CertFile: f.cert, KeyFile: f.key})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, said string
		secure     bool
		want       time.Duration
	}{
		{"silent", "", false, listener.HandshakeTime},
		{"silent, TLS", "", true, listener.HandshakeTime},
		{"half a TLS record", "\x16\x03\x01", true, listener.HandshakeTime},
		{"a letter that both protocols begin with", "P", false, listener.HandshakeTime},
		{"half of what HTTP/2 begins with", preface[:12], false, listener.HandshakeTime},
		{"HTTP/2 and nothing more", preface, false, listener.HandshakeTime},
		// The HTTP server limits this one and the next.
		{"half a request", "POST /v3/kv/range HTTP/1.1\r\nHost: ", false, headerTime},
		// The connection is idle afterwards.
		{"a request", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, idleTime},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{}.WithDefaults()
				certs := certificates{}
				if test.secure {
					certs.client = source
				}
				conn := serving(t, newEndpoint(&cfg, certs), test.secure)()
				defer conn.Close()
				began := time.Now()
				go func() { _, _ = io.WriteString(conn, test.said) }()
				_, err := io.Copy(io.Discard, conn)
				if took := time.Since(began); took < test.want || took > test.want+time.Second {
					t.Errorf("the connection was cut after %v, %v, want %v", took, err, test.want)
				}
			})
		})
	}
}

// The handshake's time limit ends with the handshake: a watch through the gateway is long-lived.
func TestALongRequestIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}.WithDefaults()
		conn := serving(t, newEndpoint(&cfg, certificates{}), false)()
		defer conn.Close()
		go func() { _, _ = io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") }()
		began := time.Now()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("the answer after %v: %v, want one", time.Since(began), err)
		}
		_ = response.Body.Close()
	})
}

// A request that arrives one byte at a time is served.
func TestSniffedBytesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}.WithDefaults()
		conn := serving(t, newEndpoint(&cfg, certificates{}), false)()
		defer conn.Close()
		go func() {
			for _, b := range []byte("PROPFIND / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") {
				time.Sleep(time.Millisecond)
				_, _ = conn.Write([]byte{b})
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("the answer = %s, want 200", response.Status)
		}
	})
}

// onePort serves HTTP on the client URLs.
func onePort(c *Config) {
	_ = c.HTTPListener.Close()
	c.HTTPListener, c.ListenClientHTTPURLs = nil, nil
}

// encrypted is TLS without certificates of clients.
func (f *files) encrypted(c *Config) {
	c.ClientTLS = tlsconf.Config{CertFile: f.cert, KeyFile: f.key}
}

// preface is what HTTP/2 begins with (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// curl and etcd's clients use the same address.
func TestOnePortServesGRPCAndHTTP(t *testing.T) {
	f := newFiles(t)
	for _, test := range []struct {
		name, scheme string
		change       func(*Config)
		tls          *tls.Config
	}{
		{"plain text", "http://", func(*Config) {}, nil},
		{"TLS", "https://", f.encrypted, f.trusting()},
		{"mutual TLS", "https://", f.mutual, f.trusting(f.ca.Issue(nil))},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := solo(t, onePort, test.change)
			url := test.scheme + s.ClientAddrs()[0]
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: test.tls, DialTimeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Put(t.Context(), "foo", "bar"); err != nil {
				t.Errorf("Put: %v", err)
			}
			for _, page := range []struct{ method, path, want string }{
				{http.MethodGet, "/health", `"health":"true"`},
				{http.MethodGet, "/readyz", "ok"},
				{http.MethodGet, "/version", "etcdserver"},
				{http.MethodGet, "/metrics", "kvnode_has_leader 1"},
				{http.MethodGet, "/status", `"role":"leader"`},
				{http.MethodPost, "/v3/kv/range", `"value":"YmFy"`},
			} {
				code, body, err := securePage(t, page.method, url+page.path, test.tls)
				if code != http.StatusOK || !strings.Contains(body, page.want) {
					t.Errorf("%s %s = %d %s %v, want 200 with %s", page.method, page.path, code, body, err, page.want)
				}
			}
			if got := s.HTTPAddrs(); len(got) != 1 || got[0] != s.ClientAddrs()[0] {
				t.Errorf("HTTPAddrs() = %v, want %v", got, s.ClientAddrs())
			}
		})
	}
}

// As in etcd, ListenClientHTTPURLs move HTTP away from the client URLs.
func TestHTTPLeavesTheClientURLs(t *testing.T) {
	s := solo(t)
	if code, body, err := securePage(t, http.MethodGet, "http://"+s.ClientAddrs()[0]+"/health", nil); err == nil {
		t.Errorf("GET /health at the client URL = %d %s, want no HTTP", code, body)
	}
	if code, body := page(t, s, "/health"); code != http.StatusOK {
		t.Errorf("GET /health = %d %s, want 200", code, body)
	}
}

// The protocol of a TLS client without ALPN is detected from its first bytes. A client without
// TLS gets an explanation.
func TestClientsThatDoNotNegotiate(t *testing.T) {
	f := newFiles(t)
	addr := solo(t, onePort, f.encrypted).ClientAddrs()[0]
	say := func(secure bool, text string) string {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if secure {
			cfg := f.trusting()
			cfg.ServerName = "127.0.0.1"
			conn = tls.Client(conn, cfg)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 12)
		n, _ := io.ReadFull(conn, answer)
		return string(answer[:n])
	}
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, test := range []struct {
		name, text, want string
		secure           bool
	}{
		{"HTTP/1", "GET /health HTTP/1.0\r\n\r\n", "HTTP/1.0 200", true},
		{"HTTP/2", preface + settings, "\x00\x00", true},
		{"neither", "\x16\x03\x01 garbage\r\n\r\n", "HTTP/1.1 400", true},
		{"HTTP/1 without TLS", "GET /health HTTP/1.1\r\n\r\n", "HTTP/1.0 400", false},
	} {
		if got := say(test.secure, test.text); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: the answer begins with %q, want %q", test.name, got, test.want)
		}
	}
}

// Headers on the client port have the same limit as elsewhere.
func TestHeadersAreBounded(t *testing.T) {
	s := solo(t, onePort)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.ClientAddrs()[0]+"/health", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Large", strings.Repeat("x", 2*http.DefaultMaxHeaderBytes))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("GET with 2 MiB of headers = %d, want 431", response.StatusCode)
	}
}

// A connection that has sent nothing, or too little, does not delay a stop.
func TestStopWhileAConnectionIsUndecided(t *testing.T) {
	f := newFiles(t)
	plain, secure := []string{"", "P", preface[:20], preface}, []string{"", "\x16", "\x16\x03\x01"}
	for _, test := range []struct {
		name   string
		change func(*Config)
		begun  []string
	}{
		{"one port", onePort, plain},
		{"one port with TLS", func(c *Config) { onePort(c); f.encrypted(c) }, secure},
		{"gRPC on its own", func(*Config) {}, plain},
		{"gRPC on its own, TLS", f.encrypted, secure},
	} {
		t.Run(test.name, func(t *testing.T) {
			patientStop(t)
			s := solo(t, test.change)
			for _, said := range test.begun {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.ClientAddrs()[0])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				if _, err := io.WriteString(conn, said); err != nil {
					t.Fatal(err)
				}
			}
			until(t, "all connections are accepted", func() bool { return s.clients.Connections().Pending == len(test.begun) })
			stop(t, s)
			if s.drainTimedOut.Load() {
				t.Error("Stop() has waited for undecided connections, want them ended")
			}
		})
	}
}
