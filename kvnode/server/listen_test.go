package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
)

// A server may listen on several URLs for each purpose.
func TestSeveralURLs(t *testing.T) {
	url := func() string { return "http://" + free(t) }
	s := solo(t, func(c *Config) {
		c.closeListeners()
		c.Node.Listener, c.ClientListener, c.HTTPListener = nil, nil, nil
		c.ListenPeerURLs = []string{url(), url()}
		c.ListenClientURLs = []string{url(), url()}
		c.ListenClientHTTPURLs = []string{url(), url()}
		c.ListenMetricsURLs = []string{url()}
	})
	if len(s.ClientAddrs()) != 2 || len(s.HTTPAddrs()) != 2 || len(s.MetricsAddrs()) != 1 {
		t.Fatalf("addresses %v, %v, %v, want 2, 2 and 1", s.ClientAddrs(), s.HTTPAddrs(), s.MetricsAddrs())
	}
	for i, addr := range s.ClientAddrs() {
		c := client(t, s)
		c.SetEndpoints(addr)
		if got, err := c.Put(t.Context(), "key", "value"); err != nil || got.Header.GetRevision() != int64(i+2) {
			t.Errorf("Put at %s = %v, %v, want revision %d", addr, got, err, i+2)
		}
	}
}

// on makes a server listen on these client URLs only.
func on(urls ...string) func(*Config) {
	return func(c *Config) {
		c.closeListeners()
		c.Node.Listener, c.ClientListener, c.HTTPListener = nil, nil, nil
		c.ListenPeerURLs = []string{"http://127.0.0.1:0"}
		c.AdvertisePeerURLs = []string{"http://127.0.0.1:1"}
		c.ListenClientURLs = urls
	}
}

func getBySocket(t *testing.T, path, url string) (body string, code int) {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), response.StatusCode
}

// Clients of etcd use unix sockets, with gRPC and HTTP, and with TLS.
func TestUnixSockets(t *testing.T) {
	t.Chdir(t.TempDir())
	f := newFiles(t)
	absolute := filepath.Join(t.TempDir(), "s")
	s := solo(t, on("unix://localhost:12345", "unix://"+absolute, "unixs://localhost:54321"), func(c *Config) {
		c.ClientTLS = tlsconf.Config{CertFile: f.cert, KeyFile: f.key}
	})
	for url, secure := range map[string]*tls.Config{
		"unix://localhost:12345": nil, "unix://" + absolute: nil, "unixs://localhost:54321": f.trusting(),
	} {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: secure, DialTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "key", url); err != nil {
			t.Errorf("Put at %s: %v", url, err)
		}
		_ = c.Close()
	}
	// Web pages cannot reach a socket, so any host is accepted.
	for _, host := range []string{"localhost", "unix", "any.example"} {
		if body, code := getBySocket(t, absolute, "http://"+host+"/health"); code != http.StatusOK || !strings.Contains(body, `"health":"true"`) {
			t.Errorf("GET /health of %s = %d %s, want true", host, code, body)
		}
	}
	stop(t, s)
	if _, err := os.Stat(absolute); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after the stop: %v", err)
	}
}

// A socket may have any name: unixs means TLS and certificates, even if net/url cannot parse the
// name.
func TestUnixSocketsWithOddNamesSpeakTLS(t *testing.T) {
	t.Chdir(t.TempDir())
	f := newFiles(t)
	for _, name := range []string{"100%.sock", "kv:sock", "a b", "[x"} {
		url := "unixs://" + name
		if !listener.SpeaksTLS(url) || listener.SpeaksTLS("unix://"+name) {
			t.Errorf("SpeaksTLS(%q) = %v, and %v without the s, want true and false", url, listener.SpeaksTLS(url), listener.SpeaksTLS("unix://"+name))
		}
		s := solo(t, on(url, "https://127.0.0.1:0"), func(c *Config) {
			c.ClientTLS = tlsconf.Config{CertFile: f.cert, KeyFile: f.key, TrustedCAFile: f.in, ClientCertAuth: true}
		})
		if all := s.cfg.Warnings(); len(all) != 0 {
			t.Errorf("%s is warned of: %q", url, all)
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(conn) // the error does not matter
		if _ = conn.Close(); strings.Contains(string(said), " 200 ") {
			t.Errorf("%s answers in plain text without a certificate: %.40q", url, said)
		}
		stop(t, s)
	}
}

// A stale socket file is replaced. A socket in use and a regular file are not.
func TestSocketsThatAreThere(t *testing.T) {
	dir := t.TempDir()
	stale, used, file := filepath.Join(dir, "stale"), filepath.Join(dir, "used"), filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stale, used} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if unix, ok := l.(*net.UnixListener); ok && path == stale { // as if it was killed
			unix.SetUnlinkOnClose(false)
			_ = unix.Close()
		}
	}
	for _, path := range []string{used, file} {
		c := Config{Node: kvnode.Config{DataDir: t.TempDir()}}
		on("unix://" + path)(&c)
		c = c.WithDefaults()
		err := c.Check()
		if err == nil || !strings.Contains(err.Error(), "ListenClientURLs unix://"+path+": the file is taken") {
			t.Errorf("Check() = %v with %s, want it refused", err, path)
		}
		if _, err := bind(t.Context(), &c, newEndpoint(&c, certificates{})); err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			t.Errorf("bind(%s) = %v, want it refused", path, err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file has %q, %v, want it untouched", data, err)
	}
	solo(t, on("unix://"+stale))
}
