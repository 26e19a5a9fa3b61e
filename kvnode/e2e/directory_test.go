package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
)

// refusal is how long a member may take to find out that it must not run. It
// may have to ask the others.
const refusal = patience

// refused starts a member and sees it end with an error that says all of want.
func refused(t *testing.T, m *testcluster.Member, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), refusal)
	defer cancel()
	before := len(m.Log())
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	code, err := m.WaitExit(ctx)
	if err != nil {
		t.Fatalf("the member was not refused: %v", err)
	}
	said := m.Log()[before:]
	if code <= 0 {
		t.Errorf("exit code %d, want a positive one", code)
	}
	for _, w := range want {
		if !strings.Contains(lastLine(said), w) {
			t.Errorf("the member does not end with an error that says %q, but:\n%s", w, said)
		}
	}
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "panic") {
		t.Errorf("the member panicked:\n%s", said)
	}
	t.Logf("refused: %s", lastLine(said))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// with returns m with the flag of the same name as flag replaced.
func with(m *testcluster.Member, flag string) {
	name, _, _ := strings.Cut(flag, "=")
	m.Flags = append(slices.DeleteFunc(slices.Clone(m.Flags), func(f string) bool { return strings.HasPrefix(f, name+"=") }), flag)
}

func kill(t *testing.T, m *testcluster.Member) {
	t.Helper()
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
}

func wipe(t *testing.T, m *testcluster.Member) {
	t.Helper()
	if err := m.Wipe(); err != nil {
		t.Fatal(err)
	}
}

// mustServe writes and reads through each of the members given.
func mustServe(t *testing.T, members ...*testcluster.Member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recovery)
	defer cancel()
	for i, m := range members {
		value := fmt.Sprint(i)
		err := m.Use(func(c *clientv3.Client) error { return putAndGet(ctx, c, value) })
		if err != nil {
			t.Fatalf("%s does not serve: %v", m.Name, err)
		}
	}
}

func putAndGet(ctx context.Context, c *clientv3.Client, value string) error {
	err := load.Retry(ctx, func(ctx context.Context) error {
		_, err := c.Put(ctx, "k", value)
		return err
	})
	if err != nil {
		return err
	}
	var got *clientv3.GetResponse
	err = load.Retry(ctx, func(ctx context.Context) (err error) {
		got, err = c.Get(ctx, "k")
		return err
	})
	if err != nil {
		return err
	}
	if len(got.Kvs) != 1 || string(got.Kvs[0].GetValue()) != value {
		return fmt.Errorf("get = %v, want %s", got.Kvs, value)
	}
	return nil
}

// A member that has lost its directory has lost its vote and its promises: it
// might elect a second leader while the first one's lease runs.
func TestMemberThatLostItsDirectoryIsRefused(t *testing.T) {
	p := onlyKvnode(t)
	t.Run("while the others run", func(t *testing.T) {
		m := startCluster(t, p, electsSoon).Members()
		mustServe(t, m...)
		kill(t, m[2])
		wipe(t, m[2])
		refused(t, m[2], "m3")
		// Nor is it let in the second time, by what the first attempt wrote.
		refused(t, m[2], "m3")
		mustServe(t, m[0], m[1])
	})
	t.Run("when all start at once", func(t *testing.T) {
		m := startWiped(t, p)
		startAll(t, m[1:]...)
		refused(t, m[0], "m1")
		mustServe(t, m[1], m[2])
	})
	t.Run("before the others have started", func(t *testing.T) {
		m := startWiped(t, p)
		startAll(t, m[0])
		time.Sleep(time.Second)
		startAll(t, m[1:]...)
		ctx, cancel := context.WithTimeout(t.Context(), refusal)
		defer cancel()
		if code, err := m[0].WaitExit(ctx); code <= 0 || err != nil {
			t.Errorf("exit code %d, %v, want a positive one", code, err)
		}
		mustServe(t, m[1], m[2])
	})
}

// startWiped returns a cluster that has served, and was killed. Its first member has lost
// its directory.
func startWiped(t *testing.T, p testcluster.Program) []*testcluster.Member {
	t.Helper()
	c := startCluster(t, p, electsSoon)
	mustServe(t, c.Members()...)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	wipe(t, c.Members()[0])
	return c.Members()
}

func startAll(t *testing.T, members ...*testcluster.Member) {
	t.Helper()
	for _, m := range members {
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory belongs to one member of one cluster.
func TestForeignDirectoryIsRefused(t *testing.T) {
	p := onlyKvnode(t)
	c := startCluster(t, p, electsSoon)
	m := c.Members()
	mustServe(t, m...)
	kill(t, m[0])
	flags := m[0].Flags

	t.Run("of a cluster with another token", func(t *testing.T) {
		with(m[0], "--initial-cluster-token=other")
		defer func() { m[0].Flags = flags }()
		refused(t, m[0], "e2e", "other")
	})
	t.Run("of another member", func(t *testing.T) {
		kill(t, m[1])
		with(m[0], "--data-dir="+m[1].Dir)
		defer func() { m[0].Flags = flags }()
		refused(t, m[0], "m1", "m2")
	})
	t.Run("of an etcd member", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "member", "wal"), 0o700); err != nil {
			t.Fatal(err)
		}
		with(m[0], "--data-dir="+dir)
		defer func() { m[0].Flags = flags }()
		refused(t, m[0], dir, "etcd")
	})
	t.Run("of another user", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		with(m[0], "--data-dir="+dir)
		defer func() { m[0].Flags = flags }()
		refused(t, m[0], dir, "thesis.txt")
	})
	t.Run("and its own is still welcome", func(t *testing.T) {
		for _, m := range m[:2] {
			if err := m.Start(); err != nil {
				t.Fatal(err)
			}
		}
		mustServe(t, m...)
	})
}

// A directory has one process at a time.
func TestDirectoryInUseIsRefused(t *testing.T) {
	c := startCluster(t, onlyKvnode(t), electsSoon)
	m := c.Members()
	other := newCluster(t, testcluster.Config{Program: onlyKvnode(t), Size: 1}).Members()[0]
	free := []string{other.Endpoint, other.Peer}
	other.Flags = m[0].Flags
	with(other, "--listen-client-urls=http://"+free[0])
	with(other, "--listen-peer-urls=http://"+free[1])
	refused(t, other, m[0].Dir)
	mustServe(t, m...)
}

// A directory that cannot be written is found out before anything is served.
func TestUnwritableDirectoryIsRefused(t *testing.T) {
	p := onlyKvnode(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.Mkdir(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, dir string
		root      bool // whether root is refused as well
	}{
		{"a file", file, true},
		{"below a file", filepath.Join(file, "sub"), true},
		{"where the kernel writes alone", "/proc/kvnode", true},
		{"without permission", locked, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if os.Geteuid() == 0 && !tc.root {
				t.Skip("root may write anywhere")
			}
			m := newCluster(t, testcluster.Config{Program: p, Size: 1}).Members()[0]
			with(m, "--data-dir="+tc.dir)
			refused(t, m, tc.dir)
		})
	}
}

// A taken port is named, with the flag that asked for it.
func TestTakenPortIsRefused(t *testing.T) {
	p := onlyKvnode(t)
	for _, tc := range []struct {
		flag string
		addr func(*testcluster.Member) string
	}{
		{"--listen-client-urls", func(m *testcluster.Member) string { return m.Endpoint }},
		{"--listen-peer-urls", func(m *testcluster.Member) string { return m.Peer }},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			m := newCluster(t, testcluster.Config{Program: p, Size: 1}).Members()[0]
			l, err := net.Listen("tcp", tc.addr(m))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			refused(t, m, tc.flag, tc.addr(m))
		})
	}
}

// An image of a member's directory is put back while the others go on. The member ends
// by itself, and says what to do.
func TestARestoredImageEndsItsMember(t *testing.T) {
	c := startCluster(t, onlyKvnode(t))
	ctx := deadline(t)
	m := follower(ctx, t, c)
	must(t, setBack(ctx, m, func() error {
		mustServe(t, m)
		return nil
	}))
	log := m.Log()
	for _, word := range setBackWords(m) {
		if !strings.Contains(log, word) {
			t.Errorf("the log does not say %q", word)
		}
	}
	if n := strings.Count(log, "message dropped"); n > 0 {
		t.Errorf("%d messages were dropped, want none", n)
	}
}

// setBack puts an image of m's directory back that is older than what m acknowledges
// in use, and waits until m has ended by itself.
func setBack(ctx context.Context, m *testcluster.Member, use func() error) error {
	image := m.Dir + ".image"
	if err := errors.Join(m.Kill(), os.CopyFS(image, os.DirFS(m.Dir)), m.Start()); err != nil {
		return err
	}
	if err := errors.Join(m.WaitReady(ctx), use(), m.Kill()); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(m.Dir), os.Rename(image, m.Dir), m.Start()); err != nil {
		return err
	}
	code, err := m.WaitExit(ctx)
	if err == nil && code <= 0 {
		err = fmt.Errorf("%s ended with code %d, want one above 0", m.Name, code)
	}
	return err
}

// setBackWords are what a member says that was set back.
func setBackWords(m *testcluster.Member) []string {
	return []string{"lost its data", "acknowledged", "member remove", "member add " + m.Name, "remove " + m.Dir, "--initial-cluster-state existing"}
}

// follower returns a member that does not lead.
func follower(ctx context.Context, t *testing.T, c *testcluster.Cluster) *testcluster.Member {
	t.Helper()
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Members() {
		if m != leader {
			return m
		}
	}
	t.Fatal("all members lead")
	return nil
}
