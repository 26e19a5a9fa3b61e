package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
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

// writings are what random clients do to an etcd.
type writings struct {
	t       *testing.T
	c       *clientv3.Client
	rand    *rand.Rand
	granted []clientv3.LeaseID
}

func (w *writings) key() string { return fmt.Sprintf("k%02d", w.rand.IntN(40)) }

func (w *writings) value() string { return fmt.Sprint(w.rand.IntN(1e9)) }

// put is one with a TTL lease, or without.
func (w *writings) put(key string) clientv3.Op {
	if len(w.granted) > 0 && w.rand.IntN(3) == 0 {
		return clientv3.OpPut(key, w.value(), clientv3.WithLease(w.granted[w.rand.IntN(len(w.granted))]))
	}
	return clientv3.OpPut(key, w.value())
}

func (w *writings) steps(ctx context.Context, n int) {
	w.t.Helper()
	for range n {
		w.step(ctx)
	}
}

// compact compacts up to a revision, if it is not compacted yet.
func (w *writings) compact(ctx context.Context, rev int64) error {
	if rev < 2 {
		return nil // a new etcd has no revision to compact
	}
	_, err := w.c.Compact(ctx, rev)
	if err != nil && strings.Contains(err.Error(), "has been compacted") {
		return nil
	}
	return err
}

// step does one thing.
func (w *writings) step(ctx context.Context) {
	w.t.Helper()
	var err error
	switch n := w.rand.IntN(20); n {
	case 0:
		var resp *clientv3.LeaseGrantResponse
		if resp, err = w.c.Grant(ctx, 1000+w.rand.Int64N(1000)); err == nil {
			w.granted = append(w.granted, resp.ID)
		}
	case 1:
		if i := len(w.granted) - 1; i > 2 {
			_, err = w.c.Revoke(ctx, w.granted[i])
			w.granted = w.granted[:i]
		}
	case 2, 3, 4:
		_, err = w.c.Delete(ctx, w.key())
	case 5:
		_, err = w.c.Delete(ctx, w.key(), clientv3.WithRange(w.key())) // empty, if the second comes before the first
	case 6, 7:
		ops := []clientv3.Op{w.put("t1"), w.put("t2"), clientv3.OpDelete("k1", clientv3.WithPrefix()), clientv3.OpTxn(nil, []clientv3.Op{w.put("t3")}, nil)}
		_, err = w.c.Txn(ctx).Then(ops[w.rand.IntN(3):]...).Commit()
	case 8:
		var resp *clientv3.GetResponse
		if resp, err = w.c.Get(ctx, "k"); err == nil && w.rand.IntN(4) == 0 {
			err = w.compact(ctx, resp.Header.GetRevision()-100)
		}
	default:
		_, err = w.c.Do(ctx, w.put(w.key()))
	}
	must(w.t, err)
}

// Three members that import a snapshot of etcd have all that etcd had: each key at each revision, each
// event, each TTL lease.
func TestAnEtcdIsImported(t *testing.T) {
	p, ctl := onlyKvnode(t), binaryPath(t, "etcdctl")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	old := startSize(t, program(t, etcd), 1)
	a, _ := memberClients(t, old)
	w := &writings{t: t, c: a, rand: rand.New(rand.NewPCG(seed, 0))}
	for range 5 {
		w.steps(deadline(t), 100)
	}
	must(t, w.compact(deadline(t), revisionOf(t, a)-200)) // or none of those above was, once in a few hundred times
	w.steps(deadline(t), 100)
	file := filepath.Join(t.TempDir(), "etcd.db")
	output(t, ctl, "--endpoints="+old.Endpoints()[0], "snapshot", "save", file)
	for _, command := range [][]string{{"import", file}, {"snapshot", "restore", file}} {
		c := newCluster(t, testcluster.Config{Program: p, Size: 3, Token: "imported", Flags: []string{electsLate}})
		for _, m := range c.Members() {
			restore(t, p, m, command...)
		}
		must(t, c.Serve(deadline(t)))
		b, _ := memberClients(t, c)
		wantAlike(deadline(t), t, a, b)
	}
}

// wantAlike compares all that clients can see of two clusters' past.
func wantAlike(ctx context.Context, t *testing.T, a, b *clientv3.Client) {
	t.Helper()
	now, err := a.Get(ctx, "k", clientv3.WithCountOnly())
	must(t, err)
	newest, first := now.Header.GetRevision(), now.Header.GetRevision()
	for rev := newest; rev > 0; rev-- {
		got, want := at(ctx, b, rev), at(ctx, a, rev)
		if !slices.Equal(got, want) {
			t.Fatalf("at revision %d there are %q, want %q", rev, got, want)
		}
		if len(want) > 1 {
			first = rev
		}
	}
	if newest < 300 || first < 3 || newest-first < 50 {
		t.Fatalf("etcd has the revisions %d to %d, want many, and some of them compacted", first, newest)
	}
	if got, want := events(ctx, t, b, first, newest), events(ctx, t, a, first, newest); !slices.Equal(got, want) {
		t.Errorf("the events from revision %d on are %v, want %v", first, got, want)
	}
	wantGranted(ctx, t, a, b)
}

// wantGranted compares TTL leases, and the keys that are attached to them.
func wantGranted(ctx context.Context, t *testing.T, a, b *clientv3.Client) {
	t.Helper()
	granted, err := a.Leases(ctx)
	must(t, err)
	if len(granted.Leases) < 3 {
		t.Fatalf("etcd has %d TTL leases, want some", len(granted.Leases))
	}
	for _, l := range granted.Leases {
		want, err := a.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		must(t, err)
		got, err := b.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		if err != nil || got.GrantedTTL != want.GrantedTTL || fmt.Sprint(texts(got.Keys)) != fmt.Sprint(texts(want.Keys)) || got.TTL < want.GrantedTTL-300 {
			t.Errorf("TTL lease %x has %+v, %v, want %+v", l.ID, got, err, want)
		}
	}
	if got, err := b.Leases(ctx); err != nil || len(got.Leases) != len(granted.Leases) {
		t.Errorf("there are %v, %v, want %d TTL leases", got, err, len(granted.Leases))
	}
}

// at returns what there is at a revision, or why that cannot be said.
func at(ctx context.Context, c *clientv3.Client, rev int64) (all []string) {
	resp, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(rev))
	if err != nil {
		return []string{err.Error()}
	}
	for _, kv := range resp.Kvs {
		all = append(all, line(kv))
	}
	return append(all, fmt.Sprintf("%d keys at %d", resp.Count, resp.Header.GetRevision()))
}

// events returns what a watch from one revision on tells of it and those up to another.
func events(ctx context.Context, t *testing.T, c *clientv3.Client, start, end int64) (all []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(start), clientv3.WithPrevKV())
	for last := int64(0); last < end; {
		resp := receives(ctx, t, watch)
		for _, e := range resp.Events {
			last = e.GetKv().GetModRevision()
			all = append(all, fmt.Sprintf("%v %v before %v", e.GetType(), line(e.GetKv()), line(e.GetPrevKv())))
		}
	}
	return all
}

func line(kv *mvccpb.KeyValue) string {
	if kv == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s=%s (%d, %d, %d, %x)", kv.GetKey(), kv.GetValue(), kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), kv.GetLease())
}

func texts(keys [][]byte) []string {
	var all []string
	for _, key := range keys {
		all = append(all, string(key))
	}
	slices.Sort(all)
	return all
}
