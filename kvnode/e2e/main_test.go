package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/internal/testcluster"
)

const (
	kvnode = "kvnode"
	etcd   = "etcd"
)

var (
	serversFlag = flag.String("servers", kvnode, "comma-separated servers to test: kvnode, etcd")
	kvnodeFlag  = flag.String("kvnode", "", "kvnode `binary`; built from the working tree if empty")
	etcdFlag    = flag.String("etcd", "", "etcd `binary`; built from the module proxy if empty")
	etcdctlFlag = flag.String("etcdctl", "", "etcdctl `binary`; built from the module proxy if empty")
)

// binDir is the directory of built binaries.
var binDir string

func TestMain(m *testing.M) {
	for variable, be := range map[string]func(string) error{holderEnv: hold, redisHolderEnv: holdRedis, diskEnv: holdDisk} {
		value := os.Getenv(variable)
		if value == "" {
			continue
		}
		if err := be(value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if addr := os.Getenv(systemctlEnv); addr != "" {
		if err := beSystemctl(addr, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if signal.Ignored(os.Interrupt) {
		// A program behind a shell's & ignores interrupts, and its children inherit that: an interrupted
		// etcdctl would not end. A signal that is caught here has its default effect in children.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// binary returns a function that builds a binary on its first call.
func binary(name, module, pkg string, given *string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		if *given != "" {
			return filepath.Abs(*given)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		dir := "."
		if module != "" {
			found, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
			if err != nil {
				return "", fmt.Errorf("find module %s: %w", module, err)
			}
			dir = strings.TrimSpace(string(found))
		}
		out := filepath.Join(binDir, name)
		if text, err := exec.CommandContext(ctx, "go", "build", "-C", dir, "-o", out, pkg).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
		return out, nil
	})
}

// kvnode is built in its own module, so that it is linked with the versions in
// its own go.mod.
var binaries = map[string]func() (string, error){
	kvnode:    binary(kvnode, "github.com/leaderlease/go", "./cmd/kvnode", kvnodeFlag),
	etcd:      binary(etcd, "", "go.etcd.io/etcd/server/v3", etcdFlag),
	"etcdctl": binary("etcdctl", "", "go.etcd.io/etcd/etcdctl/v3", etcdctlFlag),
}

func binaryPath(t *testing.T, name string) string {
	t.Helper()
	build, ok := binaries[name]
	if !ok {
		t.Fatalf("unknown binary %q", name)
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func program(t *testing.T, name string) testcluster.Program {
	t.Helper()
	p := testcluster.Program{Name: name, Path: binaryPath(t, name)}
	if name == kvnode {
		p.Args = []string{"serve"}
	}
	return p
}

// eachServer runs a test against each server of -servers.
func eachServer(t *testing.T, test func(t *testing.T, p testcluster.Program)) {
	t.Helper()
	for name := range strings.SplitSeq(*serversFlag, ",") {
		t.Run("server="+name, func(t *testing.T) { test(t, program(t, name)) })
	}
}

// onlyKvnode skips a test of features that etcd does not have.
func onlyKvnode(t *testing.T) testcluster.Program {
	t.Helper()
	if !slices.Contains(strings.Split(*serversFlag, ","), kvnode) {
		t.Skip("this is a promise of kvnode's")
	}
	return program(t, kvnode)
}

// newCluster lays out a cluster that ends with the test. If the test fails, it
// shows the ends of the logs. The whole logs are in the test's artifacts.
func newCluster(t *testing.T, cfg testcluster.Config) *testcluster.Cluster {
	t.Helper()
	cfg.Dir, cfg.LogDir, cfg.Token = t.TempDir(), t.ArtifactDir(), cmp.Or(cfg.Token, "e2e")
	c, err := testcluster.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			return
		}
		for _, m := range c.Members() {
			t.Log(m.LogTail())
		}
	})
	return c
}

// patience is the timeout for things that must happen. The machine may be busy with other
// tests, and a shorter timeout would find no failure sooner.
const patience = time.Minute

// deadline returns a context with the timeout patience.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Flags of elections in the clusters of startSize. With the default timeout a busy machine or disk may
// cost a leader its leadership, and a write that a test tries once then fails. The first
// election does not wait for the timeout. A later one does, and the first TTL leases end later by two
// and a half timeouts: tests of these use electsSoon.
const (
	electsLate = "--election-timeout=5000"
	electsSoon = "--election-timeout=1000"
)

// startCluster starts three members and waits until they serve.
func startCluster(t *testing.T, p testcluster.Program, flags ...string) *testcluster.Cluster {
	t.Helper()
	return startSize(t, p, 3, flags...)
}

// startSize starts size members and waits until they serve.
func startSize(t *testing.T, p testcluster.Program, size int, flags ...string) *testcluster.Cluster {
	t.Helper()
	c := newCluster(t, testcluster.Config{Program: p, Size: size, Flags: slices.Concat([]string{electsLate}, flags)})
	must(t, c.Serve(deadline(t)))
	return c
}
