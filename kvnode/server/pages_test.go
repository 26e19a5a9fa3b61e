package server

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

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
		{"/debug/pprof/cmdline", "server.test"},
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

// Readiness goes off before anything else, so that nobody sends more.
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
	problems, err := testutil.GatherAndLint(s.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "etcd_") { // whose names and types are what they are
			t.Errorf("metric %s: %s", p.Metric, p.Text)
		}
	}
	if _, body := page(t, s, "/metrics"); !strings.Contains(body, "grpc_server_handling_seconds_bucket") {
		t.Error("GET /metrics with --metrics extensive has no grpc_server_handling_seconds_bucket")
	}
}
