package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/e2e/cluster"
)

// TestEtcdctl runs an unmodified etcdctl against three members. The scripts say
// what it is asked and what it prints; etcd wrote them, see the package comment.
func TestEtcdctl(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	eachServer(t, func(t *testing.T, p cluster.Program) {
		datadriven.Walk(t, "testdata/etcdctl", func(t *testing.T, path string) {
			s := &ctlScript{ctl: ctl, c: startCluster(t, p), dir: t.TempDir()}
			s.learn(t)
			datadriven.RunTest(t, path, s.run)
		})
	})
}

// ctlScript runs the directives of one script against one cluster.
type ctlScript struct {
	ctl   string
	c     *cluster.Cluster
	dir   string // for files
	names *names
}

// dash stands for an empty line, of which scripts take the last ones away.
var dash = regexp.MustCompile(`(?m)^-$`)

// commandTimeout bounds one run of etcdctl, which itself gives up after 5 s.
const commandTimeout = 20 * time.Second

// run executes one directive:
//
//	etcdctl [endpoints=(m1, m2)] [columns=(ID, IS LEADER)] [sorted]
//
// runs each line of the input; columns picks those of a table; what lists
// members by ID, which depends on the ports, is to be sorted;
//
//	stdin args=(txn -i)
//
// runs etcdctl with the input as its standard input, where a dash stands for an
// empty line;
//
//	lead m1
//
// waits until the member named leads, moving leadership if need be.
func (s *ctlScript) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "etcdctl":
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			text := s.etcdctl(t, s.endpoints(t, d), strings.Fields(line), "")
			if arg, ok := d.Arg("columns"); ok {
				text = columns(text, arg.Vals)
			}
			if d.HasArg("sorted") {
				text = sorted(text)
			}
			out.WriteString(text)
		}
		return out.String()
	case "stdin":
		arg, _ := d.Arg("args")
		return s.etcdctl(t, s.endpoints(t, d), strings.Fields(strings.Join(arg.Vals, " ")), dash.ReplaceAllString(d.Input, "")+"\n")
	case "lead":
		if len(d.CmdArgs) != 1 {
			d.Fatalf(t, "lead needs the name of a member")
		}
		return s.lead(t, s.member(t, d.CmdArgs[0].Key))
	}
	d.Fatalf(t, "unknown directive %q", d.Cmd)
	return ""
}

func (s *ctlScript) member(t *testing.T, name string) *cluster.Member {
	t.Helper()
	i := slices.IndexFunc(s.c.Members(), func(m *cluster.Member) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no member is named %q", name)
	}
	return s.c.Members()[i]
}

func (s *ctlScript) endpoints(t *testing.T, d *datadriven.TestData) []string {
	t.Helper()
	arg, ok := d.Arg("endpoints")
	if !ok {
		return s.c.Endpoints()
	}
	var some []string
	for _, name := range arg.Vals {
		some = append(some, s.member(t, name).Endpoint)
	}
	return some
}

// etcdctl runs one command and returns what a person would see.
func (s *ctlScript) etcdctl(t *testing.T, endpoints, args []string, stdin string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	all := []string{"--endpoints=" + strings.Join(endpoints, ",")}
	for _, arg := range args {
		all = append(all, s.names.expand(strings.Trim(arg, `"`)))
	}
	cmd := exec.CommandContext(ctx, s.ctl, all...)
	cmd.Dir = s.dir
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := s.names.normalise(out.String())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		text += fmt.Sprintf("(exit code %d)\n", exit.ExitCode())
	} else if err != nil {
		t.Fatal(err)
	}
	return text
}

// lead makes m the leader.
func (s *ctlScript) lead(t *testing.T, m *cluster.Member) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	to, err := m.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		leader, err := s.c.Leader(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if leader == m {
			return "ok\n"
		}
		if err := moveLeader(ctx, leader, to.Header.GetMemberId()); err != nil {
			t.Logf("move-leader: %v", err)
		}
	}
	t.Fatalf("%s does not become the leader", m.Name)
	return ""
}

func moveLeader(ctx context.Context, from *cluster.Member, to uint64) error {
	return from.Use(func(c *clientv3.Client) error {
		_, err := c.MoveLeader(ctx, to)
		return err
	})
}
