package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// A snapshot that etcdctl saved becomes a new cluster with the same keys,
// revisions, leases and fencing tokens, to which members of the old one have no
// way in.
func TestSavedSnapshotIsRestored(t *testing.T) {
	ctl, p := binaryPath(t, "etcdctl"), onlyKvnode(t)
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprintf("members=%d", size), func(t *testing.T) {
			ctx := deadline(t)
			old := startSize(t, p, size)
			a, _ := memberClients(t, old)
			m := concurrency.NewMutex(session(t, a, 60), "l")
			must(t, m.Lock(ctx))
			for _, value := range []string{"1", "2"} {
				_, err := a.Put(ctx, "k", value)
				must(t, err)
			}
			file := filepath.Join(t.TempDir(), "saved")
			output(t, ctl, "--endpoints="+old.Members()[0].Endpoint, "snapshot", "save", file)
			late, err := a.Put(ctx, "k", "3")
			must(t, err)

			c := newCluster(t, testcluster.Config{Program: p, Size: size, Token: "restored", Flags: []string{electsLate}})
			for _, m := range c.Members() {
				restore(t, p, m, "snapshot", "restore", file)
			}
			must(t, c.Serve(ctx))
			b, _ := memberClients(t, c)
			got, err := b.Get(ctx, "k")
			if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].GetValue()) != "2" || got.Header.GetRevision() != late.Header.GetRevision()-1 {
				t.Fatalf("Get(k) = %v, %v, want 2 at the snapshot's revision %d", got, err, late.Header.GetRevision()-1)
			}
			if old, now := late.Header.GetRaftTerm(), got.Header.GetRaftTerm(); now < old+1_000_000_000 {
				t.Errorf("the restored cluster is in term %d after %d: tokens come again", now, old)
			}
			past, err := b.Get(ctx, "k", clientv3.WithRev(got.Kvs[0].GetModRevision()-1))
			if err != nil || string(past.Kvs[0].GetValue()) != "1" {
				t.Errorf("Get(k) of the past = %v, %v, want 1", past, err)
			}
			next := concurrency.NewMutex(session(t, b, 10), "l")
			if err := next.TryLock(ctx); err == nil {
				t.Errorf("TryLock() of a lock that was held in the snapshot with token %d succeeded", load.Token(m.IsOwner()))
			}
		})
	}
}

// restore makes the directory of a member of a new cluster by a command.
func restore(t *testing.T, p testcluster.Program, m *testcluster.Member, command ...string) {
	t.Helper()
	args := slices.Clone(command)
	for _, f := range m.Flags {
		switch name, _, _ := strings.Cut(f, "="); name {
		case "--name", "--data-dir", "--initial-cluster", "--initial-cluster-token", "--initial-advertise-peer-urls":
			args = append(args, f)
		}
	}
	output(t, p.Path, args...)
}

// output runs a program that must succeed.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", filepath.Base(program), args, err, out)
	}
	return string(out)
}

// A file that was damaged, or a directory in use, is refused and nothing is made.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	ctl, p := binaryPath(t, "etcdctl"), onlyKvnode(t)
	c := startSize(t, p, 1)
	file := filepath.Join(t.TempDir(), "saved")
	output(t, ctl, "--endpoints="+c.Endpoints()[0], "put", "k", "v")
	output(t, ctl, "--endpoints="+c.Endpoints()[0], "snapshot", "save", file)
	saved, err := os.ReadFile(file)
	must(t, err)
	if len(saved)%512 != 32 {
		t.Errorf("the snapshot has %d bytes, want a multiple of 512, and 32 of checksum", len(saved))
	}
	for _, tc := range []struct {
		name   string
		damage func([]byte) []byte
		dir    string
	}{
		{"one bit", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, ""},
		{"cut short", func(b []byte) []byte { return b[:len(b)-512] }, ""},
		{"empty", func([]byte) []byte { return nil }, ""},
		{"into a directory in use", func(b []byte) []byte { return b }, c.Members()[0].Dir},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad")
			must(t, os.WriteFile(bad, tc.damage(append([]byte(nil), saved...)), 0o600))
			dir := tc.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "new")
			}
			out, err := exec.Command(p.Path, "snapshot", "restore", bad, "--data-dir="+dir).CombinedOutput()
			if err == nil || strings.Contains(string(out), "goroutine ") {
				t.Errorf("kvnode snapshot restore = %s, %v, want a clear error", out, err)
			}
			if _, err := os.Stat(dir); tc.dir == "" && err == nil {
				t.Errorf("kvnode snapshot restore has left a directory behind: %s", out)
			}
			t.Logf("refused: %s", out)
		})
	}
}
