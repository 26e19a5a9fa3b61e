package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/mirror"

	"github.com/leaderlease/go/internal/testcluster"
)

// inBackground runs etcdctl until the test ends.
func inBackground(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command(binaryPath(t, "etcdctl"), args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = r, r
	must(t, r.cmd.Start())
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // for its exit code
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.done
	})
	return r
}

// TestMirrors copies a cluster of three to a cluster of one, to which etcdctl
// make-mirror brings what is there and then what happens.
func TestMirrors(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		from, to := startCluster(t, p), startSize(t, p, 1)
		source, _ := memberClients(t, from)
		target, _ := memberClients(t, to)
		t.Run("make-mirror", func(t *testing.T) { mirrors(t, from, to, source, target) })
		t.Run("syncer", func(t *testing.T) { syncs(t, source) })
	})
}

func mirrors(t *testing.T, from, to *testcluster.Cluster, source, target *clientv3.Client) {
	ctx := deadline(t)
	fill(ctx, t, source, "app/", "a", 25, 10)
	_, err := source.Put(ctx, "other", "1")
	must(t, err)
	_, err = target.Put(ctx, "kept", "1")
	must(t, err)
	r := inBackground(t, "--endpoints="+strings.Join(from.Endpoints(), ","), "make-mirror", "--prefix=app/", "--dest-prefix=copy/", to.Endpoints()[0])
	wantCopy(ctx, t, r, source, target)

	// Transactions, too.
	_, err = source.Txn(ctx).Then(opPut("app/0000", "changed"), opDelete("app/001", clientv3.WithPrefix()), opPut("app/new", ""), opPut("others", "")).Commit()
	must(t, err)
	wantCopy(ctx, t, r, source, target)
	_, err = source.Delete(ctx, "app/new")
	must(t, err)
	fill(ctx, t, source, "app/more/", "b", 300, 10)
	wantCopy(ctx, t, r, source, target)
	resp, err := target.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count != 25-10+300+1 {
		t.Errorf("the target has %v keys, %v, want the copy's %d and its own", resp, err, 25-10+300)
	}
}

// wantCopy waits until the target's keys copy/ are the source's app/.
func wantCopy(ctx context.Context, t *testing.T, r *running, source, target *clientv3.Client) {
	t.Helper()
	want := pairs(ctx, t, source, "app/")
	for {
		got := pairs(ctx, t, target, "copy/")
		if got == want {
			return
		}
		select {
		case <-r.done:
			out, _ := r.take(-1)
			t.Fatalf("etcdctl make-mirror ends: %s", out)
		case <-ctx.Done():
			t.Fatalf("the mirror has %.500s, want %.500s", got, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pairs returns the keys and values under a prefix, which is cut off.
func pairs(ctx context.Context, t *testing.T, c *clientv3.Client, prefix string) string {
	t.Helper()
	resp, err := c.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, kv := range resp.Kvs {
		all = append(all, fmt.Sprintf("%s=%s", kv.GetKey()[len(prefix):], kv.GetValue()))
	}
	return strings.Join(all, " ")
}

// A client's own mirror reads what is there in pages, of which there are several
// here, and hears of all that happens after.
func syncs(t *testing.T, source *clientv3.Client) {
	ctx := deadline(t)
	const keys = 2100
	fill(ctx, t, source, "", "c", keys, 1)
	before, err := source.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	s := mirror.NewSyncer(source, "", 0)
	pages, errs := s.SyncBase(ctx)
	put, err := source.Put(ctx, "after", "1")
	must(t, err)
	found, n := int64(0), 0
	for page := range pages {
		n++
		found += int64(len(page.Kvs))
		for _, kv := range page.Kvs {
			if kv.GetModRevision() >= put.Header.GetRevision() {
				found-- // it came in between, and is told again
			}
		}
	}
	if err := <-errs; err != nil || found != before.Count || n != 3 {
		t.Fatalf("SyncBase() = %d keys in %d pages, %v, want %d in 3", found, n, err, before.Count)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if resp := receives(ctx, t, s.SyncUpdates(ctx)); len(resp.Events) != 1 || resp.Events[0].GetKv().GetModRevision() != put.Header.GetRevision() {
		t.Errorf("SyncUpdates() tells %v, want the write at revision %d", resp.Events, put.Header.GetRevision())
	}
}
