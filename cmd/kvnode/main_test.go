package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed (go test -args -rewrite, then read the diff):\ngot:\n%s", path, got)
	}
}

// buffer is safe for concurrent use.
type buffer struct {
	mu struct {
		sync.Mutex
		b bytes.Buffer
	}
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.b.Write(p)
}

// String returns all that was written.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.b.String()
}

// kvnode runs a command line.
func kvnode(args ...string) (code int, stdout, stderr string) {
	var out, errs buffer
	code = run(System{Args: args, Stdout: &out, Stderr: &errs, Exit: func(int) {}})
	return code, out.String(), errs.String()
}

// anyPorts are flags of a member with free ports: another process may have kvnode's own.
const anyPorts = " --listen-client-urls http://localhost:0 --advertise-client-urls http://localhost:2379 " +
	"--listen-peer-urls http://localhost:0 --initial-advertise-peer-urls http://localhost:2380"

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		name   string
		args   string
		code   int
		stdout string // parts of what is printed
		stderr string
	}{
		{"help", "--help", exitOK, "Exit codes: 0", ""},
		{"help of serve", "serve --help", exitOK, "--listen-client-urls", ""},
		{"version", "version", exitOK, "\netcd Version: " + server.EtcdVersion + "\n", ""},
		{"version as a flag", "--version", exitOK, "kvnode Version: ", ""},
		{"version as a flag of serve", "serve --version", exitOK, "kvnode Version: ", ""},
		{"completion", "completion bash", exitOK, "__start_kvnode", ""},
		{"valid", "--validate --data-dir " + dir + anyPorts, exitOK, "the configuration is valid", ""},
		{"printed", "serve --print-config", exitOK, "name: default # default", ""},
		{"no such command", "bogus", exitUsage, "", `unknown command "bogus"`},
		{"no such flag", "--bogus", exitUsage, "", "unknown flag: --bogus"},
		{"a command with a slip", "stauts", exitUsage, "", `unknown command "stauts" for "kvnode"; did you mean status?`},
		{"a command of a command with a slip", "wal verfy x", exitUsage, "", "did you mean verify?"},
		{"a flag with a slip", "serve --dat-dir x", exitUsage, "", "unknown flag: --dat-dir; did you mean --data-dir?"},
		{"a flag of serve with a slip, without it", "--listen-client-url x", exitUsage, "", "did you mean --listen-client-urls?"},
		{"a flag of status with a slip", "status --endpoint x", exitUsage, "", "did you mean --endpoints?"},
		{"no such flag of serve", "serve --bogus", exitUsage, "", "unknown flag: --bogus"},
		{"serve takes no arguments", "serve me", exitUsage, "", `"me"`},
		{"refused", "--peer-skip-client-san-verification", exitUsage, "", "peer-skip-client-san-verification"},
		{"invalid", "--validate --name a,b", exitUsage, "", "--name"},
		{"invalid directory", "--validate --data-dir /dev/null", exitUsage, "", "is a file"},
		{"status of no endpoint", "status --endpoints=", exitUsage, "", "names no member"},
		{"status as XML", "status -o xml", exitUsage, "", "must be table or json"},
		{"status in a hurry", "status --interval 1ms", exitUsage, "", "10ms at least"},
		{"status of a path", "status --endpoints http://a:1/b", exitUsage, "", "must be host:port"},
		{"no log", "wal verify " + dir, exitFailed, "", "no log in this directory"},
		{"no directory", "wal verify /nowhere", exitFailed, "", "kvnode wal: stat /nowhere: no such file"},
		{"a log that is a file", "wal dump /dev/null", exitFailed, "", "kvnode wal: /dev/null is not a directory"},
		{"no snapshot", "snapshot status /nowhere", exitFailed, "", "kvnode snapshot status: open the snapshot: stat /nowhere: no such file"},
		{"wal of nothing", "wal verify", exitUsage, "", "kvnode wal verify: missing DIR"},
		{"dump as XML", "wal dump -o xml " + dir, exitUsage, "", "must be text or json"},
		{"a lease that cannot be", "--max-clock-skew 1ns --data-dir " + dir, exitUsage, "", "--max-clock-skew 1ns, --lease-duration 250ms"},
		{
			"no certificate", "--validate --auto-tls --trusted-ca-file /nowhere/ca --listen-client-urls https://localhost:0 --data-dir " + dir,
			exitUsage, "", "--trusted-ca-file: open /nowhere/ca",
		},
		{"a log that cannot be written", "--validate --log-outputs /nowhere/log --data-dir " + dir, exitUsage, "", "--log-outputs: open /nowhere/log"},
		{"unwritable log", "--log-outputs /nowhere/log --data-dir " + dir, exitUsage, "", "--log-outputs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := kvnode(strings.Fields(test.args)...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("kvnode %s = %d, stdout %q, stderr %q, want %d, %q, %q", test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
			}
		})
	}
}

// Shell completion offers the values of flags.
func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"serve --read-mode ":  "lease\nread-index\nlog\nserializable\n",
		"--metrics ":          "basic\nextensive\n",
		"status -o ":          "table\njson\n",
		"serve --data-dir ":   ":16", // directories
		"serve --config-file": "config-file",
		"wal verify ":         ":16",
	} {
		_, stdout, _ := kvnode(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if !strings.Contains(stdout, want) {
			t.Errorf("completion of %q = %q, want %q", args, stdout, want)
		}
	}
}

// A member that fails ends the process, with the reason as the error.
func TestAMemberThatFails(t *testing.T) {
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	srv, err := server.Start(server.Config{Node: node.Config{DataDir: t.TempDir(), SegmentSize: smallSegment, Listener: listen()}, ClientListener: listen()})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Node().Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var log buffer
	err = untilStopped(srv, make(chan struct{}), slog.New(slog.NewTextHandler(&log, nil)))
	if !errors.Is(err, node.ErrStopped) || !strings.Contains(log.String(), "the member has failed") {
		t.Errorf("untilStopped() = %v, logs %s, want kvnode.ErrStopped and a line that says so", err, log.String())
	}
}

// The exit code tells a supervisor not to restart a member that was removed.
func TestAMemberThatWasRemovedHasNotFailed(t *testing.T) {
	removed := fmt.Errorf("kvnode: %w", node.ErrRemoved)
	if err := ended(removed, removed); err != nil {
		t.Errorf("ended(removed) = %v, want nil", err)
	}
	for _, failure := range []error{node.ErrLost, node.ErrStopped} {
		if err := ended(failure, nil); !errors.Is(err, failure) {
			t.Errorf("ended(%v) = %v, want the failure", failure, err)
		}
	}
	if err := ended(nil, node.ErrTimeout); !errors.Is(err, node.ErrTimeout) {
		t.Errorf("ended(asked to, not in order) = %v, want why not", err)
	}
}

// A port that is open and does not answer most likely belongs to a member that still reads its
// store. The error says so and does not question the port.
func TestStatusOfAMemberThatStarts(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, scheme := range []string{"http", "https"} {
		code, stdout, _ := kvnode("status", "--timeout", "1s", "--endpoints", scheme+"://"+l.Addr().String())
		if code == exitOK || !strings.Contains(stdout, "still starting") || strings.Contains(stdout, "give ") {
			t.Errorf("kvnode status of a member that starts, by %s = %d %s, want that it may be still starting", scheme, code, stdout)
		}
	}
}

func TestCommitOf(t *testing.T) {
	revision, date := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}, debug.BuildSetting{Key: "vcs.time", Value: "2026-11-27T09:56:02Z"}
	for _, tc := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{&debug.BuildInfo{}, "unknown"},
		{&debug.BuildInfo{Settings: []debug.BuildSetting{revision, date}}, "0123abcd of 2026-11-27T09:56:02Z"},
		{&debug.BuildInfo{Settings: []debug.BuildSetting{revision, date, {Key: "vcs.modified", Value: "true"}}}, "0123abcd of 2026-11-27T09:56:02Z with changes"},
	} {
		if got := commitOf(tc.info); got != tc.want {
			t.Errorf("commitOf(%v) = %q, want %q", tc.info, got, tc.want)
		}
	}
}
