package demo

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// greet prints what a newcomer needs.
func (c *cluster) greet(ctx context.Context, out *printer) {
	web := "http://" + c.Members()[0].Endpoint
	out.linef("")
	out.linef("%s", out.paint(bold, "Paste into another terminal:"))
	if dir := missingInPath(); dir != "" {
		out.linef("  export PATH='%s':$PATH", dir)
	}
	out.linef("  export ETCDCTL_ENDPOINTS=%s", strings.Join(c.Endpoints(), ","))
	out.linef("  kvnode put hello again;   kvnode get hello;   kvnode status")
	out.linef("  kvnode lock name -- sh -c 'echo token $KVNODE_FENCING_TOKEN'")
	out.linef("%s", out.paint(bold, "With etcdctl, if you have it:"))
	out.linef("  etcdctl put hello world;  etcdctl get hello;  etcdctl endpoint status -w table")
	if body, ok := c.gateway(ctx); ok {
		out.linef("%s", out.paint(bold, "With curl (keys and values in base64):"))
		out.linef("  curl -i %s/v3/kv/range -d '%s'", web, body)
		out.linef(`  curl %s/v3/kv/put -d '{"key": %q, "value": %q}'`, web, encode(helloKey), encode("again"))
	}
	out.linef("%s", out.paint(bold, "To see changes as they come, until Ctrl-C:"))
	out.linef("  kvnode watch hello")
	out.linef("%s", out.paint(bold, "To look at:"))
	out.linef("  %s/lease shows the leases as they are", web)
	out.linef("  %s/metrics   %s/status   %s/readyz?verbose", web, web, web)
	out.linef("%s", out.paint(bold, "Nodes:"))
	for _, m := range c.Members() {
		out.linef("  %s  process %d  clients %s  data %s  log %s", m.Name, m.PID(), m.Endpoint, m.Dir, m.LogFile)
	}
	out.linef("")
	out.linef("Ctrl-C stops them. Try: kill -STOP, -CONT or -9 one of the processes, and watch the line below.")
}

// missingInPath returns the directory of this program if a shell does not find kvnode.
func missingInPath() string {
	if _, err := exec.LookPath("kvnode"); err == nil {
		return ""
	}
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(program)
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// gatewayPatience bounds the trial of the JSON gateway.
const gatewayPatience = 2 * time.Second

// gateway returns the body of a request that reads the first key, and whether
// the JSON gateway has answered it.
func (c *cluster) gateway(ctx context.Context) (body string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, gatewayPatience)
	defer cancel()
	body = fmt.Sprintf(`{"key": %q}`, encode(helloKey))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Members()[0].Endpoint+"/v3/kv/range", strings.NewReader(body))
	if err != nil {
		return body, false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return body, false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return body, errors.Join(err, resp.Body.Close()) == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(text), encode(helloValue))
}
