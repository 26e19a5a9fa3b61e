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

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/leaderlease/leasepage"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// size is the number of members.
const size = 3

// cluster is three members on loopback, and a client of each.
type cluster struct {
	*testcluster.Cluster
	dir     string
	clients []*client
	// died receives each member that ends without being told to.
	died chan *testcluster.Member
}

// newCluster prepares a cluster, and starts nothing. program is the command that starts a member.
func newCluster(program testcluster.Program, dir string) (*cluster, error) {
	c := &cluster{dir: dir, died: make(chan *testcluster.Member, 64)} // room for every run that a demo can have
	var err error
	c.Cluster, err = testcluster.New(testcluster.Config{
		Program: program, Dir: dir, Size: size, Prefix: "n", Token: "kvnode-demo", Died: c.died,
		Own: func(m *testcluster.Member) []string { return []string{"--lease-trace=" + c.trace(m)} },
	})
	if err != nil {
		return nil, err
	}
	for _, m := range c.Members() {
		cl, err := newClient(m)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.clients = append(c.clients, cl)
	}
	return c, nil
}

// trace returns the file in which a member records the decisions of its lease.
func (c *cluster) trace(m *testcluster.Member) string { return filepath.Join(c.dir, m.Name+".trace") }

// close kills the remaining processes. For an orderly end, call Stop first.
func (c *cluster) close() error {
	err := c.Kill()
	for _, cl := range c.clients {
		err = errors.Join(err, cl.close())
	}
	return err
}

// greet prints the addresses and commands that a new user needs.
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

// gatewayPatience is the timeout of the JSON gateway's test request.
const gatewayPatience = 2 * time.Second

// gateway returns the body of a request that reads helloKey, and whether
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

// pageOf returns the address of the lease page of a member.
func pageOf(c *client) string { return "http://" + c.m.Endpoint + "/lease" }

// keepPage writes the page of all lease decisions to the directory of the run.
func (c *cluster) keepPage(out *printer) (err error) {
	var all []leasetrace.Process
	names := make(map[uint64]string)
	for _, m := range c.Members() {
		some, err := leasetrace.ReadFiles(c.trace(m))
		if err != nil {
			return err
		}
		for i := range some {
			names[some[i].Start.ID] = m.Name
		}
		all = append(all, some...)
	}
	path := filepath.Join(c.dir, "lease-page.html")
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the page of leases: %w", err)
	}
	if err := errors.Join(leasepage.Write(f, leasepage.Draw(all, names)), f.Close()); err != nil {
		return fmt.Errorf("keep the page of leases: %w", err)
	}
	out.linef("The story as a page, for a browser: %s", path)
	return nil
}
