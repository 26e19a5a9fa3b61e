package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/testcluster"
)

// gateway is a member's JSON gateway, used with curl.
type gateway struct {
	t         *testing.T
	curl, url string
}

// eachGateway runs a test against clusters of one and of three members. The last
// member serves HTTP on a listener of its own.
func eachGateway(t *testing.T, test func(g gateway)) {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		for _, size := range []int{1, 3} {
			t.Run("members="+string(rune('0'+size)), func(t *testing.T) {
				c := newCluster(t, testcluster.Config{Program: p, Size: size, Flags: []string{electsLate}})
				url := "http://" + freeAddr(t)
				with(c.Members()[size-1], "--listen-client-http-urls="+url)
				must(t, c.Serve(deadline(t)))
				test(gateway{t, curl, url})
			})
		}
	})
}

// compact removes the spaces that etcd inserts into JSON at random.
func compact(text []byte) string {
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return string(text)
	}
	return out.String()
}

// ask runs curl and returns the body.
func (g gateway) ask(args ...string) string {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), commandTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, g.curl, append([]string{"-sS"}, args...)...).CombinedOutput()
	if err != nil {
		g.t.Fatalf("curl %v: %v: %s", args, err, out)
	}
	return compact(out)
}

// headers matches the header of a response.
var headers = regexp.MustCompile(`"header":\{"cluster_id":"\d+","member_id":"\d+","revision":"(\d+)","raft_term":"\d+"\}`)

// post posts a request and compares the answer. Its header is replaced by the
// revision.
func (g gateway) post(path, body, want string) {
	g.t.Helper()
	got := headers.ReplaceAllString(g.ask(g.url+path, "-d", body), `"header":$1`)
	if got != want {
		g.t.Errorf("POST %s %s =\n%s, want\n%s", path, body, got, want)
	}
}

// curl reads and writes with etcd's paths, field names and number formats.
func TestGateway(t *testing.T) {
	eachGateway(t, func(g gateway) {
		// foo is Zm9v, bar is YmFy.
		g.post("/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`, `{"header":2}`)
		g.post("/v3/kv/range", `{"key":"Zm9v"}`,
			`{"header":2,"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}`)
		g.post("/v3/kv/txn", `{"compare":[{"target":"CREATE","key":"Zm9v","create_revision":"2"}],"success":[{"request_put":{"key":"Zm9v","value":"Mg=="}}],"failure":[{"request_range":{"key":"Zm9v"}}]}`,
			`{"header":3,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"3"}}}]}`)
		g.post("/v3/kv/txn", `{"compare":[{"target":"VERSION","result":"GREATER","key":"Zm9v","version":"7"}],"success":[{"request_delete_range":{"key":"Zm9v"}}],"failure":[{"request_range":{"key":"Zm9v","count_only":true}}]}`,
			`{"header":3,"responses":[{"response_range":{"header":{"revision":"3"},"count":"1"}}]}`)
		g.post("/v3/kv/deleterange", `{"key":"Zm9v","prev_kv":true}`,
			`{"header":4,"deleted":"1","prev_kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"3","version":"2","value":"Mg=="}]}`)
		g.post("/v3/kv/compaction", `{"revision":"3"}`, `{"header":4}`)
		g.post("/v3/kv/range", `{"key":"Zm9v","revision":"2"}`, `{"code":11,"message":"etcdserver: mvcc: required revision has been compacted"}`)
		g.post("/v3/kv/range", `{"key":""}`, `{"code":3,"message":"etcdserver: key is not provided"}`)
		g.post("/v3/lease/grant", `{"TTL":"60","ID":"77"}`, `{"header":4,"ID":"77","TTL":"60"}`)
		g.post("/v3/lease/keepalive", `{"ID":"77"}`, `{"result":{"header":4,"ID":"77","TTL":"60"}}`)
		g.post("/v3/lease/leases", `{}`, `{"header":4,"leases":[{"ID":"77"}]}`)
		g.post("/v3/lease/revoke", `{"ID":"77"}`, `{"header":4}`)
		g.post("/v3/lease/timetolive", `{"ID":"77"}`, `{"header":4,"ID":"77","TTL":"-1"}`)
	})
}

// The pages beside the gateway serve probes and scrapers.
func TestGatewayPages(t *testing.T) {
	eachGateway(t, func(g gateway) {
		for path, want := range map[string]string{
			"/version":         `"etcdserver":"3\.\d+\.\d+"`,
			"/health":          `"health":"true"`,
			"/livez":           `ok`,
			"/readyz":          `ok`,
			"/metrics":         `(?m)^grpc_server_started_total`,
			"/v3/nothing":      `404|[Nn]ot [Ff]ound`,
			"/v3/kv/range?x=y": `(?i)not implemented|not allowed`, // it is not a POST
		} {
			if got := g.ask(g.url + path); !regexp.MustCompile(want).MatchString(got) {
				g.t.Errorf("GET %s = %.300s, want %s", path, got, want)
			}
		}
		status := g.ask(g.url+"/v3/maintenance/status", "-d", "{}")
		if !regexp.MustCompile(`"version":"3\.\d+\.\d+".*"leader":"\d+"`).MatchString(status) {
			g.t.Errorf("POST /v3/maintenance/status = %s, want a version and a leader", status)
		}
		members := g.ask(g.url+"/v3/cluster/member/list", "-d", "{}")
		if !regexp.MustCompile(`"ID":"\d+","name":"m1","peerURLs":\["http://`).MatchString(members) {
			g.t.Errorf("POST /v3/cluster/member/list = %s, want m1", members)
		}
	})
}

// A watch is a stream of JSON objects, each on a line.
func TestGatewayWatch(t *testing.T) {
	eachGateway(t, func(g gateway) {
		ctx := deadline(t)
		g.post("/v3/kv/put", `{"key":"Zm9v","value":"MQ=="}`, `{"header":2}`)
		cmd := exec.CommandContext(ctx, g.curl, "-sSN", g.url+"/v3/watch", "-d", `{"create_request":{"key":"Zm9v","start_revision":"2","prev_kv":true}}`)
		out, err := cmd.StdoutPipe()
		must(g.t, err)
		must(g.t, cmd.Start())
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
		lines := bufio.NewScanner(out)
		for i, want := range []string{
			`{"result":{"header":2,"created":true}}`,
			`{"result":{"header":2,"events":[{"kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"MQ=="}}]}}`,
			`{"result":{"header":3,"events":[{"type":"DELETE","kv":{"key":"Zm9v","mod_revision":"3"},"prev_kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"MQ=="}}]}}`,
		} {
			if i == 2 {
				g.post("/v3/kv/deleterange", `{"key":"Zm9v"}`, `{"header":3,"deleted":"1"}`)
			}
			if !lines.Scan() {
				g.t.Fatalf("the watch ended before %s: %v", want, lines.Err())
			}
			if got := headers.ReplaceAllString(compact(lines.Bytes()), `"header":$1`); got != want {
				g.t.Errorf("POST /v3/watch told\n%s, want\n%s", got, want)
			}
		}
	})
}

// lines starts curl on a path and returns its output, line by line.
func (g gateway) lines(path, body string) *bufio.Scanner {
	g.t.Helper()
	cmd := exec.CommandContext(deadline(g.t), g.curl, "-sSN", g.url+path, "-d", body)
	out, err := cmd.StdoutPipe()
	must(g.t, err)
	must(g.t, cmd.Start())
	g.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return bufio.NewScanner(out)
}

// line compares the next line.
func (g gateway) line(lines *bufio.Scanner, want string) {
	g.t.Helper()
	if !lines.Scan() {
		g.t.Fatalf("the answer ended before %s: %v", want, lines.Err())
	}
	if got := headers.ReplaceAllString(compact(lines.Bytes()), `"header":$1`); got != want {
		g.t.Errorf("the answer is\n%s, want\n%s", got, want)
	}
}

// soon repeats a request until the answer is want.
func (g gateway) soon(path, body, want string) {
	g.t.Helper()
	for ctx := deadline(g.t); ; {
		got := headers.ReplaceAllString(g.ask(g.url+path, "-d", body), `"header":$1`)
		if got == want {
			return
		}
		if ctx.Err() != nil {
			g.t.Fatalf("POST %s %s =\n%s, want\n%s", path, body, got, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// curl locks, waits for a lock and gives up.
func TestGatewayLock(t *testing.T) {
	eachGateway(t, func(g gateway) {
		// l is bA==, l/ bC8=, l0 bDA=; 77 is 4d.
		inLine := `{"key":"bC8=","range_end":"bDA=","count_only":true}`
		g.post("/v3/lease/grant", `{"TTL":"60","ID":"77"}`, `{"header":1,"ID":"77","TTL":"60"}`)
		g.post("/v3/lease/grant", `{"TTL":"60","ID":"78"}`, `{"header":1,"ID":"78","TTL":"60"}`)
		g.post("/v3/lock/lock", `{"name":"bA==","lease":"77"}`, `{"header":2,"key":"bC80ZA=="}`)
		g.post("/v3/lock/lock", `{"name":"bA==","lease":77}`, `{"header":2,"key":"bC80ZA=="}`)
		waiting := g.lines("/v3/lock/lock", `{"name":"bA==","lease":"78"}`)
		g.soon("/v3/kv/range", inLine, `{"header":3,"count":"2"}`)
		g.post("/v3/lock/unlock", `{"key":"bC80ZA=="}`, `{"header":4}`)
		g.line(waiting, `{"header":4,"key":"bC80ZQ=="}`)

		var answer bytes.Buffer
		impatient := exec.CommandContext(deadline(g.t), g.curl, "-sSN", g.url+"/v3/lock/lock", "-d", `{"name":"bA==","lease":"77"}`)
		impatient.Stdout = &answer
		must(g.t, impatient.Start())
		g.soon("/v3/kv/range", inLine, `{"header":5,"count":"2"}`)
		_, _ = impatient.Process.Kill(), impatient.Wait()
		if answer.Len() > 0 {
			g.t.Errorf("POST /v3/lock/lock of a lock that is held = %s, want no answer", answer.String())
		}
		g.soon("/v3/kv/range", inLine, `{"header":6,"count":"1"}`)

		g.post("/v3/lock/lock", `{"name":"bA==","lease":"99"}`, `{"code":2,"message":"etcdserver: requested lease not found"}`)
		g.post("/v3/lock/unlock", `{}`, `{"code":2,"message":"etcdserver: key is not provided"}`)
		g.post("/v3/lock/lock", `{`, `{"code":3,"message":"unexpected EOF"}`)
	})
}

// curl leads, proclaims, observes and resigns.
func TestGatewayElection(t *testing.T) {
	eachGateway(t, func(g gateway) {
		// e is ZQ==, e/4d ZS80ZA==, e/4e ZS80ZQ==; v is dg==, w dw==, x eA==.
		g.post("/v3/lease/grant", `{"TTL":"60","ID":"77"}`, `{"header":1,"ID":"77","TTL":"60"}`)
		g.post("/v3/lease/grant", `{"TTL":"60","ID":"78"}`, `{"header":1,"ID":"78","TTL":"60"}`)
		g.post("/v3/election/leader", `{"name":"ZQ=="}`, `{"code":2,"message":"election: no leader"}`)
		g.post("/v3/election/campaign", `{"name":"ZQ==","lease":"77","value":"dg=="}`,
			`{"header":2,"leader":{"name":"ZQ==","key":"ZS80ZA==","rev":"2","lease":"77"}}`)
		waiting := g.lines("/v3/election/campaign", `{"name":"ZQ==","lease":"78","value":"eA=="}`)
		g.soon("/v3/kv/range", `{"key":"ZS8=","range_end":"ZTA=","count_only":true}`, `{"header":3,"count":"2"}`)
		observed := g.lines("/v3/election/observe", `{"name":"ZQ=="}`)
		g.line(observed, `{"result":{"header":3,"kv":{"key":"ZS80ZA==","create_revision":"2","mod_revision":"2","version":"1","value":"dg==","lease":"77"}}}`)
		me := `"leader":{"name":"ZQ==","key":"ZS80ZA==","rev":"2","lease":"77"}`
		g.post("/v3/election/proclaim", `{`+me+`,"value":"dw=="}`, `{"header":4}`)
		g.line(observed, `{"result":{"header":4,"kv":{"key":"ZS80ZA==","create_revision":"2","mod_revision":"4","version":"2","value":"dw==","lease":"77"}}}`)
		g.post("/v3/election/leader", `{"name":"ZQ=="}`,
			`{"header":4,"kv":{"key":"ZS80ZA==","create_revision":"2","mod_revision":"4","version":"2","value":"dw==","lease":"77"}}`)
		g.post("/v3/election/resign", `{`+me+`}`, `{"header":5}`)
		// Etcd's header is that of the key's creation.
		g.line(waiting, `{"header":3,"leader":{"name":"ZQ==","key":"ZS80ZQ==","rev":"3","lease":"78"}}`)
		g.line(observed, `{"result":{"header":5,"kv":{"key":"ZS80ZQ==","create_revision":"3","mod_revision":"3","version":"1","value":"eA==","lease":"78"}}}`)
		g.post("/v3/election/proclaim", `{`+me+`}`, `{"code":2,"message":"election: not leader"}`)
		g.post("/v3/election/proclaim", `{}`, `{"code":2,"message":"\"leader\" field must be provided"}`)
		g.post("/v3/election/resign", `{}`, `{"code":2,"message":"\"leader\" field must be provided"}`)
	})
}

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
		// A client that starts with HTTP/2 is served by the gRPC server.
		if got := g.ask("-o/dev/null", "-w%{http_version} %{http_code} %{content_type}", "--http2-prior-knowledge", g.url+"/health"); got != "2 415 application/grpc" {
			t.Errorf("curl --http2-prior-knowledge /health = %q, want 2 415 application/grpc", got)
		}
		// etcdctl reads /metrics at the port that it writes to.
		ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
		defer cancel()
		out, err := exec.CommandContext(ctx, ctl, "--endpoints="+endpoint, "check", "datascale", "--load=s").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "PASS: Approximate system memory used") {
			t.Errorf("etcdctl check datascale = %s %v, want PASS", out, err)
		}
	})
}

// With mutual TLS curl uses the same port as etcdctl with a certificate, and is refused without one.
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

// without returns flags without the flag of that name.
func without(flags []string, name string) (rest []string) {
	for _, f := range flags {
		if !strings.HasPrefix(f, name+"=") {
			rest = append(rest, f)
		}
	}
	return rest
}
