package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// TestEtcdctl runs an unmodified etcdctl against three members. The scripts hold
// its commands and the expected output; etcd wrote them, see the package comment.
func TestEtcdctl(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		datadriven.Walk(t, "testdata/etcdctl", func(t *testing.T, path string) {
			runScript(t, newScript(t, ctl, startCluster(t, p, electsFor(filepath.Base(path)))), path)
		})
	})
}

// electsFor is the election timeout for a script: see electsLate. That of member kills.
func electsFor(script string) string {
	if script == "lease" || script == "member" {
		return electsSoon
	}
	return electsLate
}

// The same scripts print the same on one member.
func TestEtcdctlOnOneMember(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		for _, name := range []string{"auth", "lock", "txn", "watch", "write"} {
			t.Run(name, func(t *testing.T) {
				noRewrite(t)
				runScript(t, newScript(t, ctl, startSize(t, p, 1)), "testdata/etcdctl/"+name)
			})
		}
	})
}

// And with mutual TLS between all.
func TestEtcdctlScriptsWithMutualTLS(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		for _, name := range []string{"auth", "lease", "lock", "watch", "write"} {
			t.Run(name, func(t *testing.T) {
				noRewrite(t)
				s := newSecured(t, p, electsFor(name))
				s.trust()
				s.start()
				runScript(t, newScript(t, ctl, s.Cluster, s.shown("client")...), "testdata/etcdctl/"+name)
			})
		}
	})
}

// noRewrite skips a test that repeats the scripts of another.
func noRewrite(t *testing.T) {
	t.Helper()
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		t.Skip("TestEtcdctl writes the scripts")
	}
}

// ctlScript runs the directives of one script against one cluster.
type ctlScript struct {
	ctl     string
	flags   []string // of each etcdctl
	c       *testcluster.Cluster
	dir     string // for files
	names   *names
	running map[string]*running // etcdctl in the background
}

func newScript(t *testing.T, ctl string, c *testcluster.Cluster, flags ...string) *ctlScript {
	t.Helper()
	s := &ctlScript{ctl: ctl, c: c, flags: flags, dir: t.TempDir(), running: make(map[string]*running)}
	s.learn(t)
	return s
}

// runScript runs the script in the file.
func runScript(t *testing.T, s *ctlScript, path string) {
	t.Helper()
	defer s.stopAll(t)
	datadriven.RunTest(t, path, s.run)
}

// dash stands for an empty line, of which scripts take the last ones away.
var dash = regexp.MustCompile(`(?m)^-$`)

// patient are the flags of an etcdctl that waits for a busy machine: by default it gives up after
// five seconds, and two to connect.
var patient = []string{"--command-timeout=30s", "--dial-timeout=30s"}

// commandTimeout bounds one run of etcdctl.
const commandTimeout = patience

// run executes one directive:
//
//	etcdctl [endpoints=(m1, m2)] [columns=(ID, IS LEADER)] [sorted] [until=text]
//
// runs each line of the input; columns picks those of a table; what lists
// members by ID, which depends on the ports, is to be sorted; until repeats a
// line that takes its time until it prints the text, quotes left out;
//
//	stdin args=(txn -i)
//
// runs etcdctl with the input as its standard input, where a dash stands for an
// empty line;
//
//	lead m1
//
// waits until the member named leads, moving leadership if need be. Directives for
// processes are in etcdctl_script_test.go.
func (s *ctlScript) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	directives := map[string]func(*testing.T, *datadriven.TestData) string{
		"etcdctl": s.lines, "stdin": s.stdin,
		"begin": s.begin, "tell": s.tell, "read": s.read, "interrupt": s.interrupt,
		"new": s.lay, "start": s.start, "kill": s.kill, "wipe": s.wipe, "exits": s.exits,
		"lead": func(t *testing.T, d *datadriven.TestData) string { return s.lead(t, s.member(t, name(t, d))) },
	}
	directive, ok := directives[d.Cmd]
	if !ok {
		d.Fatalf(t, "unknown directive %q", d.Cmd)
	}
	return directive(t, d)
}

// name returns the name that a directive is about.
func name(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if len(d.CmdArgs) == 0 {
		d.Fatalf(t, "%s needs a name", d.Cmd)
	}
	return d.CmdArgs[0].Key
}

// lines runs etcdctl with each line of the input.
func (s *ctlScript) lines(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		text := s.until(t, d, strings.Fields(line))
		if arg, ok := d.Arg("columns"); ok {
			text = columns(text, arg.Vals)
		}
		if d.HasArg("sorted") {
			text = sorted(text)
		}
		out.WriteString(text)
	}
	return out.String()
}

// until runs etcdctl once, or as often as it takes.
func (s *ctlScript) until(t *testing.T, d *datadriven.TestData, args []string) string {
	t.Helper()
	arg, repeated := d.Arg("until")
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		text := s.etcdctl(t, s.endpoints(t, d), args, "")
		if !repeated || strings.Contains(strings.ReplaceAll(text, `"`, ""), strings.Join(arg.Vals, " ")) || time.Since(begin) > commandTimeout {
			return text
		}
	}
}

// stdin runs etcdctl with the input as its standard input.
func (s *ctlScript) stdin(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	arg, _ := d.Arg("args")
	return s.etcdctl(t, s.endpoints(t, d), strings.Fields(strings.Join(arg.Vals, " ")), dash.ReplaceAllString(d.Input, "")+"\n")
}

func (s *ctlScript) member(t *testing.T, name string) *testcluster.Member {
	t.Helper()
	i := slices.IndexFunc(s.c.Members(), func(m *testcluster.Member) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no member is named %q", name)
	}
	return s.c.Members()[i]
}

func (s *ctlScript) endpoints(t *testing.T, d *datadriven.TestData) []string {
	t.Helper()
	arg, ok := d.Arg("endpoints")
	if !ok {
		return s.c.Running()
	}
	var some []string
	for _, name := range arg.Vals {
		some = append(some, s.member(t, name).Endpoint)
	}
	return some
}

// args returns the arguments of an etcdctl.
func (s *ctlScript) args(endpoints, args []string) []string {
	all := slices.Concat(patient, s.flags, []string{"--endpoints=" + strings.Join(endpoints, ",")})
	for _, arg := range args {
		all = append(all, s.names.expand(strings.Trim(arg, `"`)))
	}
	return all
}

// etcdctl runs one command and returns what a person would see.
func (s *ctlScript) etcdctl(t *testing.T, endpoints, args []string, stdin string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.ctl, s.args(endpoints, args)...)
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
func (s *ctlScript) lead(t *testing.T, m *testcluster.Member) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	to, err := m.WaitStatus(ctx)
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

func moveLeader(ctx context.Context, from *testcluster.Member, to uint64) error {
	return from.Use(func(c *clientv3.Client) error {
		_, err := c.MoveLeader(ctx, to)
		return err
	})
}

// lay lays out a process that joins the cluster, and names its addresses:
//
//	new m4
func (s *ctlScript) lay(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	known := len(s.c.Members())
	m, err := s.c.Join(name(t, d))
	if err != nil {
		t.Fatal(err)
	}
	if no := slices.Index(s.c.Members(), m) + 1; no > known {
		s.names.addMember(no, m)
	}
	return "ok\n"
}

// start starts a member and waits until it serves, unless it is to be refused:
//
//	start m4
func (s *ctlScript) start(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	m := s.member(t, name(t, d))
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	if err := m.WaitReady(ctx); err != nil {
		t.Log(err)
		return "does not serve\n"
	}
	return "ok\n"
}

// kill kills a member:
//
//	kill m1
func (s *ctlScript) kill(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	kill(t, s.member(t, name(t, d)))
	return "ok\n"
}

// wipe removes what a member has stored, after killing it:
//
//	wipe m1
func (s *ctlScript) wipe(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	m := s.member(t, name(t, d))
	kill(t, m)
	wipe(t, m)
	return "ok\n"
}

// exits waits until a member has ended by itself, and forgets it:
//
//	exits m4
func (s *ctlScript) exits(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	m := s.member(t, name(t, d))
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	code, err := m.WaitExit(ctx)
	if err != nil {
		t.Log(err)
		return "still runs\n"
	}
	t.Logf("%s ended with exit code %d: %s", m.Name, code, lastLine(m.Log()))
	s.c.Forget(m.Name)
	return "ok\n"
}

// endpointsOf returns the client addresses of members, for etcdctl.
func endpointsOf(members ...*testcluster.Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.Endpoint)
	}
	return strings.Join(all, ",")
}

// number reads a decimal number.
func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
