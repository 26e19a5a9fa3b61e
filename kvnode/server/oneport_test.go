package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// onePort leaves HTTP to the client URLs.
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

// What curl and etcd's clients ask for is at the one address that they know.
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

// With URLs of its own HTTP is there only, as in etcd.
func TestHTTPLeavesTheClientURLs(t *testing.T) {
	s := solo(t)
	if code, body, err := securePage(t, http.MethodGet, "http://"+s.ClientAddrs()[0]+"/health", nil); err == nil {
		t.Errorf("GET /health at the client URL = %d %s, want no HTTP", code, body)
	}
	if code, body := page(t, s, "/health"); code != http.StatusOK {
		t.Errorf("GET /health = %d %s, want 200", code, body)
	}
}

// A client with TLS that negotiates nothing is known by what it says first, and
// whoever forgets TLS is told.
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

// A page that a browser shows must not write through the gateway on a port that
// only the browser can reach.
func TestTheGatewayRefusesOtherOrigins(t *testing.T) {
	s := solo(t, onePort)
	for origin, want := range map[string]int{
		"": http.StatusOK, "http://" + s.ClientAddrs()[0]: http.StatusOK, "http://elsewhere.example": http.StatusForbidden,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+s.ClientAddrs()[0]+"/v3/kv/put", strings.NewReader(`{"key":"Zm9v","value":"YmFy"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("POST /v3/kv/put from origin %q = %d, want %d", origin, response.StatusCode, want)
		}
	}
}

// HTTP on the client port is bounded as it is elsewhere.
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

// Whoever has connected and says nothing, or too little, holds up no stop.
func TestStopWhileAConnectionIsUndecided(t *testing.T) {
	f := newFiles(t)
	for name, change := range map[string]func(*Config){
		"one port":             onePort,
		"one port with TLS":    func(c *Config) { onePort(c); f.encrypted(c) },
		"gRPC on its own":      func(*Config) {},
		"gRPC on its own, TLS": f.encrypted,
	} {
		t.Run(name, func(t *testing.T) {
			patientStop(t)
			s := solo(t, change)
			for _, said := range []string{"", "P", preface[:20], preface} {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.ClientAddrs()[0])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				if _, err := io.WriteString(conn, said); err != nil {
					t.Fatal(err)
				}
			}
			// Connections are accepted in order: those above have been by now.
			conn := dial(t, s)
			conn.Connect()
			time.Sleep(50 * time.Millisecond)
			stop(t, s)
			if s.cut.Load() {
				t.Error("Stop() has waited for undecided connections, want them ended")
			}
		})
	}
}
