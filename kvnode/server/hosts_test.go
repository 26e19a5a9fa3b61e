package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode"
)

// asked is an HTTP request: its address, host and origin.
type asked struct {
	method, base, path, host, origin, site string
	tls                                    *tls.Config
}

// send sends the request on a new connection.
func (a asked) send(t *testing.T) (code int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, a.method, a.base+a.path, strings.NewReader(`{"key":"Zm9v","value":"YmFy"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = a.host
	for name, value := range map[string]string{"Origin": a.origin, "Sec-Fetch-Site": a.site} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: a.tls}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A web page that has rebound its host name to this machine cannot read or write on any listener
// without TLS. Neither can a page of another site. The error has the reason.
func TestAWebPageGetsNothing(t *testing.T) {
	t.Run("HTTP on its own", func(t *testing.T) { checkWebPages(t, func(*Config) {}) })
	t.Run("one port", func(t *testing.T) { checkWebPages(t, onePort) })
}

func checkWebPages(t *testing.T, change func(*Config)) {
	t.Helper()
	s := solo(t, change, func(c *Config) { c.EnablePprof = true; c.ListenMetricsURLs = []string{"http://" + free(t)} })
	before := started(t, s)
	addr := s.HTTPAddrs()[0]
	for _, path := range []string{
		"/v3/kv/put", "/v3/kv/range", "/v3/watch", "/v3/maintenance/snapshot", "/health", "/livez", "/readyz", "/version",
		"/metrics", "/status", "/debug/pprof/", "/debug/pprof/cmdline", "/", "/nothing",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions, http.MethodDelete} {
			rebound := asked{method: method, base: "http://" + addr, path: path, host: "evil.example:" + portOf(t, addr), site: "same-origin"}
			rebound.origin = "http://" + rebound.host
			code, body := rebound.send(t)
			if code != http.StatusMisdirectedRequest || !strings.Contains(body, "evil.example") || !strings.Contains(body, "host whitelist") {
				t.Errorf("%s %s by a page that was rebound = %d %s, want 421 that names the host and the whitelist", method, path, code, body)
			}
		}
	}
	for _, path := range []string{"/v3/kv/put", "/v3/kv/range"} {
		for _, site := range []string{"", "cross-site"} { // browsers of old say nothing of the site
			from := asked{method: http.MethodPost, base: "http://" + s.HTTPAddrs()[0], path: path, origin: "http://evil.example", site: site}
			if code, body := from.send(t); code != http.StatusForbidden {
				t.Errorf("POST %s by a page from elsewhere = %d %s, want 403", path, code, body)
			}
		}
	}
	if n := started(t, s) - before; n != 0 {
		t.Errorf("%v requests of web pages have reached the API, want none", n)
	}
	// Monitoring has names of its own for the metrics.
	monitor := asked{method: http.MethodGet, base: "http://" + s.MetricsAddrs()[0], path: "/metrics", host: "kvnode-0.kvnode:2381"}
	if code, body := monitor.send(t); code != http.StatusOK {
		t.Errorf("GET /metrics by a name of its own = %d %s, want 200", code, body)
	}
	// The same request without an origin, or with the member's own, is answered.
	for _, origin := range []string{"", "http://" + addr} {
		if code, body := (asked{method: http.MethodPost, base: "http://" + addr, path: "/v3/kv/put", origin: origin}).send(t); code != http.StatusOK {
			t.Errorf("POST /v3/kv/put from origin %q = %d %s, want 200", origin, code, body)
		}
	}
}

// Requests may name the hosts of the member's URLs, any address, as probes do, and the names in
// HostWhitelist.
func TestHostsThatAreAnswered(t *testing.T) {
	for _, test := range []struct {
		name, host string
		listed     []string
		want       bool
	}{
		{"localhost", "localhost", nil, true},
		{"localhost with a port", "localhost:2379", nil, true},
		{"localhost in full", "LOCALHOST.:1", nil, true},
		{"an address", "10.1.2.3:2379", nil, true},
		{"an address without a port", "10.1.2.3", nil, true},
		{"an address of IPv6", "[fd00::1]:2379", nil, true},
		{"one without a port", "[fd00::1]", nil, true},
		{"none, as of HTTP/1.0", "", nil, true},
		{"a name that begins as an address", "127.0.0.1.evil.example:2379", nil, false},
		{"a name below localhost", "evil.localhost", nil, false},
		{"a name that ends in localhost", "evillocalhost", nil, false},
		{"the advertised host", "N1.example:2379", nil, true},
		{"the host that is listened on", "in.example", nil, true},
		{"the host of metrics", "metrics.example", nil, true},
		{"the host for peers", "n1.peers.example", nil, true},
		{"another member's host", "n2.peers.example", nil, false},
		{"a listed name", "b.test:80", []string{"a.test", "B.test"}, true},
		{"a name that is not listed", "c.test", []string{"a.test"}, false},
		{"localhost beside listed names", "localhost", []string{"a.test"}, true},
		{"any name, if any is listed", "c.test", []string{"a.test", "*"}, true},
		{"a star, which is no name", "*", nil, false},
	} {
		c := Config{
			Node: kvnode.Config{
				ClientURLs: []string{"http://n1.example:2379"}, Cluster: []kvnode.Member{{Name: "n2", PeerURLs: []string{"http://n2.peers.example:2380"}}},
			},
			ListenClientURLs:  []string{"http://in.example:2379", "http://0.0.0.0:2379"},
			ListenMetricsURLs: []string{"http://metrics.example:2381"}, AdvertisePeerURLs: []string{"http://n1.peers.example:2380"},
			HostWhitelist: test.listed, Logger: slog.New(slog.DiscardHandler),
		}
		if got := newHosts(&c).Allows(test.host); got != test.want {
			t.Errorf("%s: Allows(%q) = %v, want %v", test.name, test.host, got, test.want)
		}
	}
}

// Over TLS every host is accepted, because the certificate identifies the member, also for
// clients without ALPN. HostWhitelist * accepts every host in plain text.
func TestAnyHostIsAnswered(t *testing.T) {
	f := newFiles(t)
	secure := solo(t, onePort, f.encrypted)
	negotiating := f.trusting()
	negotiating.NextProtos = []string{"http/1.1"}
	for name, cfg := range map[string]*tls.Config{"TLS": negotiating, "TLS without ALPN": f.trusting()} {
		from := asked{method: http.MethodGet, base: "https://" + secure.HTTPAddrs()[0], path: "/version", host: "any.example", tls: cfg}
		if code, body := from.send(t); code != http.StatusOK {
			t.Errorf("GET /version over %s for any host = %d %s, want 200", name, code, body)
		}
	}
	open := solo(t, onePort, func(c *Config) { c.HostWhitelist = []string{"*"} })
	from := asked{method: http.MethodGet, base: "http://" + open.HTTPAddrs()[0], path: "/version", host: "any.example"}
	if code, body := from.send(t); code != http.StatusOK {
		t.Errorf("GET /version with HostWhitelist=* = %d %s, want 200", code, body)
	}
}

// Entries that cannot match a host are rejected by name.
func TestHostWhitelistIsChecked(t *testing.T) {
	for name, ok := range map[string]bool{
		"*": true, "a.example": true, "10.0.0.1": true, "fd00::1": true,
		"*.example": false, "a.example:2379": false, "http://a.example": false, "a b": false,
	} {
		c := Config{HostWhitelist: []string{name}}.WithDefaults()
		err := c.Validate()
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), `HostWhitelist "`+name+`"`) {
			t.Errorf("Validate() with HostWhitelist %q = %v, want success %v", name, err, ok)
		}
	}
}
