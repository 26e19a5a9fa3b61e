package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
	"github.com/leaderlease/go/kvnode/server/status"
)

// page fetches a path of the HTTP listener.
func page(t *testing.T, s *Server, path string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddrs()[0]+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // no idle connection is left to goleak
	response, err := http.DefaultClient.Do(request)
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

func TestPages(t *testing.T) {
	s := solo(t, func(c *Config) { c.EnablePprof = true })
	for _, test := range []struct{ path, want string }{
		{"/health", `{"health":"true","reason":""}`},
		{"/livez", "ok"},
		{"/readyz", "ok"},
		{"/readyz?verbose", "[+]linearizable_read ok"},
		{"/readyz/linearizable_read", "ok"},
		{"/version", `"etcdserver":"3.7.0"`},
		{"/metrics", "kvnode_has_leader 1"},
		{"/metrics", `leaderlease_held{group="kvnode"} 1`},
		{"/metrics", `grpc_server_started_total{grpc_method="Put"`},
		{"/metrics", "go_goroutines"},
		{"/debug/pprof/cmdline", filepath.Base(os.Args[0])},
		{"/status", `"role":"leader"`},
	} {
		if code, body := page(t, s, test.path); code != http.StatusOK || !strings.Contains(body, test.want) {
			t.Errorf("GET %s = %d %s, want 200 with %s", test.path, code, body, test.want)
		}
	}
}

func TestPprofIsOffUnlessAskedFor(t *testing.T) {
	s := solo(t)
	if code, _ := page(t, s, "/debug/pprof/cmdline"); code != http.StatusNotFound {
		t.Errorf("GET /debug/pprof/cmdline = %d, want 404", code)
	}
}

func TestStatusPage(t *testing.T) {
	s := solo(t)
	var r status.Report
	// The cluster's format is raised soon after the start: what is committed is applied a moment later.
	until(t, "all that is committed is applied", func() bool {
		_, body := page(t, s, "/status")
		r = status.Report{}
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatalf("GET /status = %s: %v", body, err)
		}
		return r.Applied == r.Commit
	})
	if r.Role != "leader" || r.Lease.State != "valid" || !r.Ready || r.Applied == 0 {
		t.Errorf("GET /status = %+v, want a leader that is ready, with a lease", r)
	}
}

// The gateway is a client of the server itself.
func TestGateway(t *testing.T) {
	post := func(s *Server) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+s.HTTPAddrs()[0]+"/v3/kv/put", strings.NewReader(`{"key":"Zm9v","value":"YmFy"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(data)
	}
	if code, body := post(solo(t)); code != http.StatusOK || !strings.Contains(body, `"revision":"2"`) {
		t.Errorf("POST /v3/kv/put = %d %s, want 200 and revision 2", code, body)
	}
	if code, _ := post(solo(t, func(c *Config) { c.DisableGateway = true })); code != http.StatusNotFound {
		t.Errorf("POST /v3/kv/put without the gateway = %d, want 404", code)
	}
}

// Readiness is turned off first, so that clients send no new requests.
func TestReadinessGoesOffFirst(t *testing.T) {
	s := solo(t)
	s.stopping.Store(true) // as Stop does first
	for path, want := range map[string]int{"/readyz": 503, "/readyz/linearizable_read": 503, "/health": 503, "/livez": 200} {
		if code, body := page(t, s, path); code != want {
			t.Errorf("GET %s while stopping = %d %s, want %d", path, code, body, want)
		}
	}
}

func TestMetricNames(t *testing.T) {
	s := solo(t, func(c *Config) { c.ExtensiveMetrics = true })
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		f.Metric = f.GetMetric()[:1] // the linter reads the names alone, and takes long over a thousand series
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "etcd_") { // etcd's names and types
			t.Errorf("metric %s: %s", p.Metric, p.Text)
		}
	}
	if _, body := page(t, s, "/metrics"); !strings.Contains(body, "grpc_server_handling_seconds_bucket") {
		t.Error("GET /metrics with --metrics extensive has no grpc_server_handling_seconds_bucket")
	}
}

// etcd's old paths are served: the gateway of 3.3, with the same protection against web pages,
// and expvar, which a port for metrics does not show.
func TestOldPaths(t *testing.T) {
	metrics := free(t)
	s := solo(t, func(c *Config) { c.ListenMetricsURLs = []string{"http://" + metrics} })
	for _, test := range []struct {
		method, url, origin, want string
		code                      int
	}{
		{http.MethodPost, s.HTTPAddrs()[0] + "/v3beta/kv/put", "", `"revision":"2"`, http.StatusOK},
		{http.MethodPost, s.HTTPAddrs()[0] + "/v3/kv/range", "", `"count":"1"`, http.StatusOK},
		{http.MethodPost, s.HTTPAddrs()[0] + "/v3beta/kv/put", "cross-site", "", http.StatusForbidden},
		{http.MethodGet, s.HTTPAddrs()[0] + "/debug/vars", "", `"memstats"`, http.StatusOK},
		{http.MethodGet, metrics + "/debug/vars", "", "", http.StatusNotFound},
		{http.MethodPost, metrics + "/v3beta/kv/put", "", "", http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+test.url, strings.NewReader(`{"key":"Zm9v","value":"YmFy"}`))
		if err != nil {
			t.Fatal(err)
		}
		if test.origin != "" {
			request.Header.Set("Sec-Fetch-Site", test.origin)
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != test.code || !strings.Contains(string(data), test.want) {
			t.Errorf("%s %s from %q = %d %.200s, %v, want %d and %q", test.method, test.url, test.origin, response.StatusCode, data, err, test.code, test.want)
		}
	}
}

// inPages runs f with a client's connection to the pages, in virtual time.
func inPages(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, c net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pages, l := newPages(handler, slog.New(slog.DiscardHandler)), listener.NewPushListener()
		done := make(chan error, 1)
		go func() { done <- pages.Serve(l) }()
		client, server := net.Pipe()
		if err := l.Push(server); err != nil {
			t.Fatal(err)
		}
		f(t, client)
		_, _ = client.Close(), pages.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve() = %v, want ErrServerClosed", err)
		}
	})
}

// drip sends a request with a body of one byte per second. It returns how long the connection
// lasts, and the answer.
func drip(t *testing.T, c net.Conn, method, path string) (took time.Duration, answer string) {
	t.Helper()
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", method, path)
		for err == nil {
			time.Sleep(time.Second)
			_, err = c.Write([]byte("x"))
		}
	}()
	said, _ := io.ReadAll(c) // how it ends is all there is to know
	took = time.Since(began)
	_ = c.Close()
	<-done
	return took, string(said)
}

// A request with a slow body ends, whether or not the page reads the body. If the page reads it,
// the client gets the reason.
func TestABodyThatTakesForEver(t *testing.T) {
	reads := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
	inPages(t, reads, func(t *testing.T, c net.Conn) {
		took, answer := drip(t, c, http.MethodPost, "/v3/kv/put")
		if took > bodyTime+5*time.Second || !strings.Contains(answer, "not arrived within the limit of 1m0s") {
			t.Errorf("a body of a byte a second lasts %v and gets %q, want %v and the reason", took, answer, bodyTime)
		}
	})
	inPages(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, c net.Conn) {
		if took, _ := drip(t, c, http.MethodGet, "/metrics"); took > bodyTime+5*time.Second {
			t.Errorf("a body that no page reads lasts %v, want %v", took, bodyTime)
		}
	})
}

// The time limit is for bodies only: streams may be slow, answers may take long, and a connection
// may send several requests.
func TestWhatMayLast(t *testing.T) {
	long := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.URL.Path == "/v3/lock/lock" {
			select {
			case <-time.After(10 * bodyTime):
			case <-r.Context().Done():
				err = r.Context().Err()
			}
		}
		_, _ = fmt.Fprintf(w, "%d bytes, %v", len(body), err) // the other end says what is missing
	}
	inPages(t, long, func(t *testing.T, c net.Conn) {
		answers := bufio.NewReader(c)
		say := func(format string, args ...any) {
			t.Helper()
			if _, err := fmt.Fprintf(c, format, args...); err != nil {
				t.Fatal(err)
			}
		}
		wait := func(what string) {
			t.Helper()
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || string(body) != "200 bytes, <nil>" {
				t.Errorf("%s gets %q, %v, want all of it read and served", what, body, err)
			}
		}
		for range 2 {
			say("POST /v3/lock/lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n%0200d", 1)
			wait("an answer that lasts ten times as long as a body may take")
			time.Sleep(idleTime - time.Second)
		}
		for _, path := range []string{"/v3/watch", "/v3beta/watch", "/v3beta/lease/keepalive"} {
			say("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n", path)
			for range 200 {
				time.Sleep(time.Second)
				say("1")
			}
			wait("a stream of a byte a second to " + path)
		}
	})
}

// All methods with streams of requests are in streamingPaths.
func TestStreamingPathsAreKnown(t *testing.T) {
	s := solo(t)
	paths := map[string]string{"etcdserverpb.Watch/Watch": "/v3/watch", "etcdserverpb.Lease/LeaseKeepAlive": "/v3/lease/keepalive"}
	found := 0
	for service, info := range s.grpc.GetServiceInfo() {
		if service == fastwire.Service {
			continue // no path of the gateway leads there
		}
		for _, m := range info.Methods {
			if m.IsClientStream {
				found++
				if path := paths[service+"/"+m.Name]; !streamingPaths[path] {
					t.Errorf("requests of %s/%s are streams, and its path %q is cut after %v", service, m.Name, path, bodyTime)
				}
			}
		}
	}
	if found != len(streamingPaths) {
		t.Errorf("%d methods have streams of requests, and %d paths are for them", found, len(streamingPaths))
	}
}
