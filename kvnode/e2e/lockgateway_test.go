package e2e

import (
	"bufio"
	"bytes"
	"os/exec"
	"testing"
	"time"
)

// lines starts curl on a path and returns what it prints, line by line.
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

// soon posts a request until the answer is the one that is wanted.
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
