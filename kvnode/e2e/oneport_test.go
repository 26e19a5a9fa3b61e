package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leaderlease/go/internal/testcluster"
)

func findCurl(t *testing.T) string {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	return curl
}

// With the usual flags only, curl and etcdctl use one port.
func TestOnePort(t *testing.T) {
	curl := findCurl(t)
	ctl := binaryPath(t, "etcdctl")
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		c := newCluster(t, testcluster.Config{Program: p, Size: 1})
		must(t, c.Serve(deadline(t)))
		endpoint := c.Members()[0].Endpoint
		g := gateway{t, curl, "http://" + endpoint}
		g.post("/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`, `{"header":2}`)
		g.post("/v3/kv/range", `{"key":"Zm9v"}`,
			`{"header":2,"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}`)
		for path, want := range map[string]string{
			"/version": `"etcdserver":"3\.\d+\.\d+"`,
			"/health":  `"health":"true"`,
			"/livez":   `ok`,
			"/readyz":  `ok`,
			"/metrics": `(?m)^process_resident_memory_bytes`,
		} {
			if got := g.ask(g.url + path); !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("GET %s = %.300s, want %s", path, got, want)
			}
		}
		if got := g.ask("-o/dev/null", "-w%{http_version} %{http_code}", "--http2", g.url+"/health"); got != "1.1 200" {
			t.Errorf("curl --http2 /health = %q, want 1.1 200", got)
		}
		// HTTP/2 without a question before is gRPC's, which says what it is.
		if got := g.ask("-o/dev/null", "-w%{http_version} %{http_code} %{content_type}", "--http2-prior-knowledge", g.url+"/health"); got != "2 415 application/grpc" {
			t.Errorf("curl --http2-prior-knowledge /health = %q, want 2 415 application/grpc", got)
		}
		// It reads /metrics where it writes.
		ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
		defer cancel()
		out, err := exec.CommandContext(ctx, ctl, "--endpoints="+endpoint, "check", "datascale", "--load=s").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "PASS: Approximate system memory used") {
			t.Errorf("etcdctl check datascale = %s %v, want PASS", out, err)
		}
	})
}

// With mutual TLS curl gets in with a certificate, by the same port as etcdctl,
// and not without.
func TestOnePortWithMutualTLS(t *testing.T) {
	curl := findCurl(t)
	s := newSecured(t, onlyKvnode(t), electsLate)
	for _, m := range s.Members() {
		m.Flags = without(m.Flags, "--listen-client-http-urls")
	}
	s.start()
	certificate := []string{"--cert", filepath.Join(s.dir, "client.crt"), "--key", filepath.Join(s.dir, "client.key")}
	ask := func(scheme string, more ...string) (string, error) {
		args := append([]string{"-sS", "--cacert", filepath.Join(s.dir, "ca.crt"), scheme + s.Endpoints()[0] + "/health"}, more...)
		return s.run(curl, args...)
	}
	for _, version := range []string{"--http1.1", "--http2", "--no-alpn"} {
		if out, err := ask("https://", append(certificate, version)...); err != nil || !strings.Contains(out, `"health":"true"`) {
			t.Errorf("curl %s with a certificate = %s %v, want health", version, out, err)
		}
		if out, err := ask("https://", version); err == nil {
			t.Errorf("curl %s without a certificate = %s, want no connection", version, out)
		}
	}
	if out, err := ask("http://"); err != nil || !strings.Contains(out, "https://") {
		t.Errorf("curl in plain text = %s %v, want to be told of https", out, err)
	}
}

// without returns flags without one of them.
func without(flags []string, name string) (rest []string) {
	for _, f := range flags {
		if !strings.HasPrefix(f, name+"=") {
			rest = append(rest, f)
		}
	}
	return rest
}
