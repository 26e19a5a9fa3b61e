package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
)

// one runs f with the address of a cluster of one member.
func one(t *testing.T, f func(addr string)) {
	t.Helper()
	runServer(t, server.Config{Node: node.Config{DataDir: t.TempDir(), Listener: listen(t)}, ClientListener: listen(t)}, func(c *clientv3.Client) {
		f(c.Endpoints()[0])
	})
}

// put, get, watch and del agree on a key.
func TestKeys(t *testing.T) {
	one(t, func(addr string) {
		for _, step := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"put", "a", "1"}, exitOK, "OK\n"},
			{[]string{"put", "ab", "2"}, exitOK, "OK\n"},
			{[]string{"put", "b", "3\x00"}, exitOK, "OK\n"},
			{[]string{"get", "a"}, exitOK, "a\n1\n"},
			{[]string{"get", "none"}, exitOK, ""},
			{[]string{"get", "a", "--prefix"}, exitOK, "a\n1\nab\n2\n"},
			{[]string{"get", "", "--prefix", "--keys-only"}, exitOK, "a\nab\nb\n"},
			{[]string{"get", "a", "b", "--limit", "1"}, exitOK, "a\n1\n"},
			{[]string{"get", "b", "--print-value-only", "--serializable"}, exitOK, "3\x00\n"},
			{[]string{"get", "", "--prefix", "--rev", "2"}, exitOK, "a\n1\n"},
			{[]string{"get", "a", "--rev", "9"}, exitFailed, "future revision"},
			{[]string{"put", "a", "4", "--lease", "7b"}, exitFailed, "requested lease not found"},
			{[]string{"del", "a", "--prefix"}, exitOK, "2\n"},
			{[]string{"del", "a"}, exitOK, "0\n"},
		} {
			code, stdout, stderr := kvnode(append(step.args, "--endpoints", addr)...)
			good := stdout == step.want || code != exitOK && strings.Contains(stderr, step.want)
			if code != step.code || !good {
				t.Errorf("kvnode %q = %d %q %s, want %d %q", step.args, code, stdout, stderr, step.code, step.want)
			}
		}
		const json = `"kvs":[{"key":"YQ==","create_revision":"6","mod_revision":"6","version":"1","value":"NQ=="}],"count":"1"}`
		_, _, _ = kvnode("put", "a", "5", "--endpoints", addr)
		if code, stdout, stderr := kvnode("get", "a", "-w", "json", "--endpoints", addr); code != exitOK || !strings.Contains(stdout, json) {
			t.Errorf("kvnode get -w json = %d %s %s, want %s", code, stdout, stderr, json)
		}
	})
}

// ETCDCTL_ENDPOINTS alone is enough, and no command asks the default endpoint beside it.
func TestKeysByEnvironment(t *testing.T) {
	one(t, func(addr string) {
		for _, step := range []struct {
			args []string
			want string
		}{
			{[]string{"put", "a", "1"}, "OK\n"},
			{[]string{"get", "a"}, "a\n1\n"},
			{[]string{"lock", "l", "--", "true"}, ""},
			{[]string{"snapshot", "save", filepath.Join(t.TempDir(), "s")}, ""},
			{[]string{"del", "a"}, "1\n"},
		} {
			var out, errs buffer
			code := run(System{Args: step.args, Environ: []string{"ETCDCTL_ENDPOINTS=" + addr}, Stdout: &out, Stderr: &errs})
			if code != exitOK || step.want != "" && out.String() != step.want {
				t.Fatalf("kvnode %q = %d %q %s, want %q", step.args, code, out.String(), errs.String(), step.want)
			}
		}
	})
}

// A watch prints changes until it is interrupted.
func TestWatchCommand(t *testing.T) {
	one(t, func(addr string) {
		for _, args := range [][]string{{"put", "a", "1"}, {"put", "a", "2"}, {"del", "a"}} {
			if code, _, stderr := kvnode(append(args, "--endpoints", addr)...); code != exitOK {
				t.Fatalf("kvnode %q = %d %s", args, code, stderr)
			}
		}
		var out, errs buffer
		exited := make(chan int, 1)
		go func() {
			exited <- run(System{Args: []string{"watch", "a", "--rev", "2", "--prev-kv", "--endpoints", addr}, Stdout: &out, Stderr: &errs})
		}()
		want := "PUT\na\n1\nPUT\na\n1\na\n2\nDELETE\na\n2\na\n\n"
		for deadline := time.Now().Add(time.Minute); out.String() != want && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		send(t, syscall.SIGTERM)
		if code := <-exited; code != exitOK || out.String() != want {
			t.Errorf("kvnode watch = %d %q %s, want %q", code, out.String(), errs.String(), want)
		}
	})
}

// A command under a lock finds its token in the environment. Tokens grow, and the exit code is passed on.
func TestLockCommand(t *testing.T) {
	var tokens []string
	one(t, func(addr string) {
		for range 2 {
			code, stdout, stderr := kvnode("lock", "l", "--endpoints", addr, "--", os.Args[0], "-test.run=^TestLockedChild$", "-test.v", "child")
			if code != 7 {
				t.Fatalf("kvnode lock = %d %s %s, want the 7 of its command", code, stdout, stderr)
			}
			_, token, _ := strings.Cut(stdout, "token ")
			token, _, _ = strings.Cut(token, "\n")
			tokens = append(tokens, token)
			if code, left, _ := kvnode("get", "l", "--prefix", "--endpoints", addr); code != exitOK || left != "" {
				t.Errorf("after the command the lock's keys are %q, want none", left)
			}
		}
	})
	if tokens[0] == "" || tokens[0] == tokens[1] {
		t.Errorf("tokens are %q, want two that differ", tokens)
	}
}

// A client that loses the lock kills the command that it runs under it.
func TestALostLockKillsItsCommand(t *testing.T) {
	runServer(t, server.Config{Node: node.Config{DataDir: t.TempDir(), Listener: listen(t)}, ClientListener: listen(t)}, func(c *clientv3.Client) {
		var out, errs buffer
		exited := make(chan int, 1)
		go func() {
			exited <- run(System{
				Args:   []string{"lock", "l", "--endpoints", c.Endpoints()[0], "--", os.Args[0], "-test.run=^TestLockedChild$", "-test.v", "waits"},
				Stdout: &out, Stderr: &errs,
			})
		}()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(out.String(), "token ") && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		got, err := c.Get(t.Context(), "l", clientv3.WithPrefix())
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("the lock's keys are %v, %v, want one; its command said %q %s", got, err, out.String(), errs.String())
		}
		if _, err := c.Revoke(t.Context(), clientv3.LeaseID(got.Kvs[0].GetLease())); err != nil {
			t.Fatal(err)
		}
		if code := <-exited; code != exitFailed || !strings.Contains(errs.String(), "the lock is lost") {
			t.Errorf("kvnode lock = %d %s, want %d and that the lock is lost", code, errs.String(), exitFailed)
		}
	})
}

// TestLockedChild is the program that the tests above run under a lock.
func TestLockedChild(t *testing.T) {
	if os.Getenv("KVNODE_FENCING_TOKEN") == "" {
		return
	}
	t.Logf("key %s token %s\n", os.Getenv("ETCD_LOCK_KEY"), os.Getenv("KVNODE_FENCING_TOKEN"))
	if slices.Contains(os.Args, "waits") {
		time.Sleep(time.Hour) // until it is killed
	}
	os.Exit(7)
}

// A saved snapshot passes the check, and fails it after damage.
func TestSnapshotSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv.db")
	one(t, func(addr string) {
		if code, _, stderr := kvnode("put", "a", "1", "--endpoints", addr); code != exitOK {
			t.Fatal(stderr)
		}
		if code, stdout, stderr := kvnode("snapshot", "save", path, "--endpoints", addr); code != exitOK || !strings.Contains(stdout, ", 2, 1, ") {
			t.Fatalf("snapshot save = %d %q %s, want revision 2 and a key", code, stdout, stderr)
		}
	})
	if code, stdout, stderr := kvnode("snapshot", "verify", path); code != exitOK || !strings.Contains(stdout, path+": whole, revision 2, 1 keys") {
		t.Errorf("snapshot verify = %d %q %s, want it whole", code, stdout, stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.LastIndexByte(data[:len(data)-32], data[0])] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := kvnode("snapshot", "verify", path); code != exitFailed {
		t.Errorf("snapshot verify of a damaged file = %d %s, want %d", code, stdout, exitFailed)
	}
}

// Invalid arguments are refused with the wrong value.
func TestKeyRefusals(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"get", "kvnode get: missing KEY (usage: kvnode get KEY [RANGE_END])\nSee kvnode get --help.\n"},
		{"get a b c", `kvnode get: 3 arguments, want 2 at most: "c" is one too many`},
		{"lock", "kvnode lock: missing NAME"},
		{"put", "kvnode put: missing KEY"},
		{"get a b --prefix", `RANGE_END "b" and --prefix`},
		{"get a -w xml", `"xml" must be simple or json`},
		{"get a --rev -1", "--rev -1"},
		{"get a --limit -1", "--limit -1"},
		{"get a --keys-only --print-value-only", "--keys-only and --print-value-only"},
		{"get a --timeout 0s", "--timeout 0s must be positive"},
		{"get a --endpoints=", "names no member"},
		{"get a --endpoints http://a:1/b", "must be host:port"},
		{"get a --cacert /nowhere", "--cacert: open /nowhere"},
		{"put a 1 --lease xyz", `--lease "xyz"`},
		{"put a 1 --lease 0", `--lease "0"`},
		{"put a 1 -w xml", "must be simple or json"},
		{"watch a --rev -1", "--rev -1"},
		{"watch a b --prefix", "--prefix"},
		{"lock l --ttl 1500ms", "--ttl 1.5s must be whole seconds"},
		{"lock l --ttl 0s", "--ttl 0s"},
		{"snapshot save x --endpoints a:1,b:1", "must be one member"},
	} {
		code, _, stderr := kvnode(strings.Fields(test.args)...)
		if code != exitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("kvnode %s = %d %s, want %d and %q", test.args, code, stderr, exitUsage, test.want)
		}
	}
	for _, command := range []string{"get", "put", "del", "lock"} {
		if code, _, stderr := kvnode(command, ""); code != exitUsage || !strings.Contains(stderr, `"" must not be empty`) {
			t.Errorf("kvnode %s with an empty name = %d %s, want it refused", command, code, stderr)
		}
	}
}

// If no member answers, a command fails in time and names the endpoint.
func TestNoMemberAnswers(t *testing.T) {
	addr := free(t)
	for _, args := range []string{"get a", "put a 1", "del a", "watch a", "lock l", "snapshot save x"} {
		code, _, stderr := kvnode(append(strings.Fields(args), "--timeout", "1s", "--endpoints", addr)...)
		if code != exitFailed || !strings.HasPrefix(stderr, addr+": ") || !strings.Contains(stderr, "refused") {
			t.Errorf("kvnode %s of a dead endpoint = %d %s, want %d, the endpoint and the reason", args, code, stderr, exitFailed)
		}
	}
}
