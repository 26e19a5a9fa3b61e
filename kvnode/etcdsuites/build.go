package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const testsModule = "go.etcd.io/etcd/tests/v3"

// Paths of the repository, from here, and of its copy of a file that a test reads.
const (
	repository   = "../.."
	sampleConfig = repository + "/cmd/kvnode/internal/settings/testdata/etcd.conf.yml.sample"
)

// bench is a directory laid out as etcd's tests expect it: bin/ beside tests/,
// which is a copy, since the tests write into it.
type bench struct {
	dir   string
	logs  string // where to keep what tests say; empty: nowhere
	fast  bool   // the tests' clients send by package fastkv
	count int    // how often each test is run
}

func (b bench) bin() string              { return filepath.Join(b.dir, "bin") }
func (b bench) kvnode() string           { return filepath.Join(b.bin(), "kvnode") }
func (b bench) home(suite string) string { return filepath.Join(b.dir, "tests", suite) }
func (b bench) binary(suite string) string {
	return filepath.Join(b.bin(), strings.ReplaceAll(suite, "/", "-")+".test")
}

// etcdScript stands for etcd: kvnode, and etcd's own proxies, which run in front of it. Tests
// listen in plain text on all addresses, which kvnode requires a flag for.
const etcdScript = `#!/bin/sh
case $1 in gateway|grpc-proxy) exec "${0%etcd}proxy" "$@" ;; esac
export KVNODE_ALLOW_PLAINTEXT=true
exec "${0%etcd}kvnode" "$@"
`

// furnish fills the directory: etcd's tests at the version in go.mod, kvnode
// under the name of etcd, and what they need.
func (b bench) furnish(ctx context.Context, suites []string) error {
	tests, err := moduleDir(ctx, testsModule)
	if err != nil {
		return err
	}
	if err := copyWritable(tests, filepath.Join(b.dir, "tests")); err != nil {
		return fmt.Errorf("copy %s: %w", testsModule, err)
	}
	if err := patch(filepath.Join(b.dir, "tests")); err != nil {
		return err
	}
	if b.fast {
		if err := b.quicken(ctx); err != nil {
			return err
		}
	}
	if err := copyFile(sampleConfig, filepath.Join(b.dir, "etcd.conf.yml.sample")); err != nil {
		return err
	}
	if err := b.build(ctx, suites); err != nil {
		return err
	}
	// Tests that run there must not use it as their module.
	if err := os.Remove(filepath.Join(b.dir, "tests", "go.mod")); err != nil {
		return fmt.Errorf("copy %s: %w", testsModule, err)
	}
	return nil
}

// build builds the programs, and the suites from the copy.
func (b bench) build(ctx context.Context, suites []string) error {
	modfile := filepath.Join(b.dir, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(name, filepath.Join(b.dir, name)); err != nil {
			return err
		}
	}
	mod := "-mod=readonly"
	if b.fast || slices.Contains(suites, robustness) {
		mod = "-mod=mod" // what this repository requires besides
		if err := b.requireOwn(ctx, modfile); err != nil {
			return err
		}
	}
	builds := [][]string{
		{"build", "-C", repository, "-o", b.kvnode(), "./cmd/kvnode"},
		{"build", "-o", b.bin() + "/", "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdutl/v3"},
		{"build", "-o", filepath.Join(b.bin(), "proxy"), "go.etcd.io/etcd/server/v3"},
		{"mod", "edit", "-replace", testsModule + "=" + filepath.Join(b.dir, "tests"), modfile},
	}
	for _, suite := range suites {
		builds = append(builds, []string{"test", "-c", "-trimpath", mod, "-modfile", modfile, "-tags", "e2e", "-o", b.binary(suite), testsModule + "/" + suite})
	}
	for _, args := range builds {
		if _, err := goTool(ctx, args...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(b.bin(), "etcd"), []byte(etcdScript), 0o700); err != nil {
		return fmt.Errorf("write what stands for etcd: %w", err)
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(filepath.Clean(from))
	if err != nil {
		return fmt.Errorf("run this in its own directory: %w", err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// copyWritable copies a directory of the module cache, which is read-only.
func copyWritable(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o600)
	})
}

// moduleDir downloads a module that go.mod requires, and returns its directory.
func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := goTool(ctx, "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", fmt.Errorf("where %s is: %w", module, err)
	}
	return m.Dir, nil
}

// goTool runs the go command and returns what it prints.
func goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	if slices.Contains(args, "-modfile") {
		cmd.Env = append(os.Environ(), "GOWORK=off") // it knows no workspace
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v: %w", args, err)
	}
	return out, nil
}

// edit replaces a piece of the framework that etcd's integration tests use,
// which starts etcd in the tests' own process. With the edits, and
// testdata/integration, it starts kvnode as a process instead.
type edit struct {
	old, replacement string
	times            int // how often it is there; 0: once
}

const (
	robustness   = "robustness"
	framework    = "framework/integration"
	clusterFile  = framework + "/cluster.go"
	bridgeFile   = framework + "/bridge.go"
	clusterTests = "integration/cluster_test.go"
	watchTests   = "e2e/watch_test.go"
)

var edits = map[string][]edit{
	clusterFile: {
		// kvnode's members connect by TCP.
		{old: `URLScheme    = "unix"`, replacement: `URLScheme    = "http"`},
		{old: `URLSchemeTLS = "unixs"`, replacement: `URLSchemeTLS = "https"`},
		{old: `addr := fmt.Sprintf("127.0.0.1:%05d%05d", c+BasePort, os.Getpid())`, replacement: `addr := fmt.Sprintf("127.0.0.1:%d", 0*c)`},
		{old: `l, err := transport.NewUnixListener(addr)`, replacement: `l, err := net.Listen("tcp", addr)`},
		// The code that starts etcd stays, and is not called.
		{old: `Server        *etcdserver.EtcdServer`, replacement: "Server        *Server\n\tconfigured    MemberConfig"},
		{old: `func (m *Member) Launch() error {`, replacement: `func (m *etcdMember) Launch() error {`},
		{old: `m.Client, err = NewClientV3(m)`, replacement: `m.Client, err = NewClientV3(&m.Member)`},
		{old: "m.Name = mcfg.Name\n", replacement: "m.Name = mcfg.Name\n\tm.configured = mcfg\n"},
		// kvnode has no log of etcd's to verify.
		{old: "if !m.Closed {\n", replacement: "if false {\n"},
		{old: "\tm.RaftHandler.Pause()\n"},
		{old: "\tm.RaftHandler.Resume()\n"},
	},
	// An election timeout of 500 ms: processes on a loaded machine need more than 100. Tests that
	// wait for election timeouts count in these ticks, too.
	"framework/config/cluster.go": {{old: "TickDuration = 10 * time.Millisecond", replacement: "TickDuration = 50 * time.Millisecond"}},
	// Ten clients read all keys as fast as the machine goes meanwhile, on a few processors that they
	// share with the server. A watch that starves is late by many seconds.
	watchTests: {{old: "150 * time.Millisecond", replacement: "time.Second", times: 4}},
	// A bridge in front of a member ends for good when the member does not listen. Etcd's members
	// listen before they have a bridge; a process takes a moment.
	bridgeFile:   {{old: "if oerr != nil {\n\t\t\tinc.Close()\n\t\t\treturn", replacement: "if oerr != nil {\n\t\t\tinc.Close()\n\t\t\tcontinue"}},
	clusterTests: {{old: "unix://foo:12345", replacement: "http://foo:12345", times: 2}},
	// kvnode has no failpoints of gofail, and removes its log as soon as it may, while etcd keeps some files. So
	// a run without snapshots keeps the log. The shortest interval of progress notifications is that of etcd,
	// which raises shorter ones.
	robustness + "/scenarios/scenarios.go": {
		{old: "\t\te2e.WithGoFailEnabled(true),\n\t\t// Set", replacement: "\t\t// Set"},
		{old: "CatchUpEntries(100, etcdserver.", replacement: "CatchUpEntries(1000*etcdserver."},
		{old: "Interval(10*time.Millisecond)", replacement: "Interval(100*time.Millisecond)"},
	},
	// A member answers Status while it replays its log, so the revision may be lower than before its restart.
	robustness + "/traffic/etcd.go": {{old: "RandRange(lastRev, resp.Header.Revision+5)", replacement: "RandRange(lastRev, max(lastRev, resp.Header.Revision)+5)"}},
	robustness + "/report/wal.go":   {{old: "\trepaired := false\n", replacement: "\tif walDir != \"\" {\n\t\treturn readLog(dataDir)\n\t}\n\trepaired := false\n"}},
	// Unlike etcd's, a member without a leader is not healthy, so the test waits until it is.
	robustness + "/failpoint/failpoint.go": {{
		old: "resp, err := cli.Check(ctx, &healthpb.HealthCheckRequest{})\n",
		replacement: "resp, err := cli.Check(ctx, &healthpb.HealthCheckRequest{})\n" +
			"\t\tfor err == nil && resp.Status != healthpb.HealthCheckResponse_SERVING && ctx.Err() == nil {\n\t\t\ttime.Sleep(100 * time.Millisecond)\n" +
			"\t\t\tresp, err = cli.Check(ctx, &healthpb.HealthCheckRequest{})\n\t\t}\n",
	}},
	// A member must have ended before its log can be read. Without the first entries the linearizable
	// operations are judged alone.
	robustness + "/main_test.go": {{
		old: "PersistedRequestsCluster(lg, c)\n\tif err != nil {",
		replacement: "PersistedRequestsCluster(lg, c)\n\tif err != nil && strings.Contains(err.Error(), \"no entry for raft index 1\") {\n" +
			"\t\tt.Log(\"judged without the log, which is truncated\")\n\t} else if err != nil {",
	}, {old: "\tpersistedRequests, err :=", replacement: "\t_ = forcestopCluster(c)\n\tpersistedRequests, err :="}},
}

// patch edits the copy of etcd's tests.
func patch(tests string) error {
	for name, list := range edits {
		if err := change(filepath.Join(tests, name), list); err != nil {
			return fmt.Errorf("patch etcd's framework: %w", err)
		}
	}
	for name, to := range map[string]string{"integration/launch.go": framework, "integration/server.go": framework, "robustness/kvnode.go": robustness + "/report"} {
		if err := copyFile(filepath.Join("testdata", name), filepath.Join(tests, to, filepath.Base(name))); err != nil {
			return err
		}
	}
	// It tests a client library that is no part of the server.
	if err := os.Remove(filepath.Join(tests, "integration", "cache_test.go")); err != nil {
		return fmt.Errorf("patch etcd's framework: %w", err)
	}
	return nil
}

// change applies edits to a file. Each must match.
func change(name string, list []edit) error {
	text, err := os.ReadFile(filepath.Clean(name))
	if err != nil {
		return err
	}
	code := string(text)
	for _, e := range list {
		if n, want := strings.Count(code, e.old), max(e.times, 1); n != want {
			return fmt.Errorf("%s: %q is there %d times, not %d", name, e.old, n, want)
		}
		code = strings.ReplaceAll(code, e.old, e.replacement)
	}
	return os.WriteFile(name, []byte(code), 0o600)
}

const (
	clientModule = "go.etcd.io/etcd/client/v3"
	ownModule    = "github.com/leaderlease/go"
	// fastSuites are the suites with clients in the tests' own processes.
	fastSuites = "integration,integration/clientv3,integration/clientv3/concurrency,integration/clientv3/connectivity," +
		"integration/clientv3/experimental/recipes,integration/clientv3/lease,integration/clientv3/naming,integration/clientv3/watch"
)

// fastEdits let the tests replace the path of the client to the KV service: package fastkv imports
// clientv3, and is added from testdata/fastkv.
var fastEdits = map[string][]edit{
	"client/kv.go": {
		{old: "func NewKV(c *Client) KV {\n\tapi := &kv{remote: RetryKVClient(c)}", replacement: "var KVClient = RetryKVClient\n\nfunc NewKV(c *Client) KV {\n\tapi := &kv{remote: KVClient(c)}"},
	},
	// Tests that send messages unchanged.
	"tests/" + framework + "/cluster_direct.go": {
		{old: "pb.NewKVClient(c.ActiveConnection())", replacement: "clientv3.KVClient(c)"},
	},
}

// quicken makes all clients of the tests send by package fastkv.
func (b bench) quicken(ctx context.Context) error {
	client, err := moduleDir(ctx, clientModule)
	if err != nil {
		return err
	}
	if err := copyWritable(client, filepath.Join(b.dir, "client")); err != nil {
		return fmt.Errorf("copy %s: %w", clientModule, err)
	}
	for name, list := range fastEdits {
		if err := change(filepath.Join(b.dir, name), list); err != nil {
			return fmt.Errorf("patch etcd's client: %w", err)
		}
	}
	return copyFile("testdata/fastkv/fastkv.go", filepath.Join(b.dir, "tests", framework, "fastkv.go"))
}

// requireOwn adds this repository, and the patched client, to the copy of go.mod, and its sums to that of
// go.sum.
func (b bench) requireOwn(ctx context.Context, modfile string) error {
	root, err := filepath.Abs(repository)
	if err != nil {
		return fmt.Errorf("where the repository is: %w", err)
	}
	edits := []string{"mod", "edit", "-require", ownModule + "@v0.0.0"}
	if b.fast {
		edits = append(edits, "-replace", clientModule+"="+filepath.Join(b.dir, "client"))
	}
	for _, part := range []string{"", "/leaderlease", "/leaderlease/leasetest", "/leaderlease/metrics"} {
		edits = append(edits, "-replace", ownModule+part+"="+root+part)
	}
	if _, err := goTool(ctx, append(edits, modfile)...); err != nil {
		return err
	}
	var sums []byte
	for _, name := range []string{"go.sum", filepath.Join(root, "go.sum")} {
		data, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return fmt.Errorf("run this in its own directory: %w", err)
		}
		sums = append(sums, data...)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "go.sum"), sums, 0o600); err != nil {
		return fmt.Errorf("write the sums of both: %w", err)
	}
	return nil
}
