package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"testing"

	"github.com/leaderlease/go/internal/testcluster"
)

// gateway is a member's JSON gateway, asked by curl.
type gateway struct {
	t         *testing.T
	curl, url string
}

// eachGateway runs a test against clusters of one and of three members, whose
// last member serves HTTP on a listener of its own.
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

// compact takes out the spaces that etcd puts into JSON at random.
func compact(text []byte) string {
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return string(text)
	}
	return out.String()
}

// ask asks with curl and returns the body.
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

// headers are of each response.
var headers = regexp.MustCompile(`"header":\{"cluster_id":"\d+","member_id":"\d+","revision":"(\d+)","raft_term":"\d+"\}`)

// post posts a request and compares the answer, in which the header is replaced
// by its revision.
func (g gateway) post(path, body, want string) {
	g.t.Helper()
	got := headers.ReplaceAllString(g.ask(g.url+path, "-d", body), `"header":$1`)
	if got != want {
		g.t.Errorf("POST %s %s =\n%s, want\n%s", path, body, got, want)
	}
}

// curl reads and writes with etcd's paths, names of fields and forms of numbers.
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

// Pages beside the gateway, as probes and scrapers read them.
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
