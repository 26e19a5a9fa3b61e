package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/ordering"

	"github.com/leaderlease/go/internal/testcluster"
)

// TestClientLibraries uses what etcd's client has beside the client itself.
func TestClientLibraries(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		a, b := memberClients(t, startCluster(t, p))
		t.Run("leasing", func(t *testing.T) { leasesKeys(t, a, b) })
		t.Run("namespace", func(t *testing.T) { keepsToNamespace(t, a, b) })
		t.Run("naming", func(t *testing.T) { namesEndpoints(t, a, b) })
		t.Run("ordering", func(t *testing.T) { ordersReads(t, a) })
	})
}

// Clients that cache keys under leases of their own, by nested transactions and
// comparisons of ranges, never read what another one has replaced.
func leasesKeys(t *testing.T, a, b *clientv3.Client) {
	ctx := deadline(t)
	one, closeOne, err := leasing.NewKV(a, "leases/")
	must(t, err)
	defer closeOne()
	two, closeTwo, err := leasing.NewKV(b, "leases/")
	must(t, err)
	defer closeTwo()
	want := func(kv clientv3.KV, want string) {
		t.Helper()
		for _, key := range []string{"l/1", "l/2"} {
			resp, err := kv.Get(ctx, key)
			must(t, err)
			got := ""
			for _, kv := range resp.Kvs {
				got = string(kv.GetValue())
			}
			if got != want {
				t.Errorf("Get(%s) = %q, want %q", key, got, want)
			}
		}
	}
	for i, kv := range []clientv3.KV{one, two, two, one} {
		for _, key := range []string{"l/1", "l/2"} {
			_, err := kv.Put(ctx, key, fmt.Sprint(i))
			must(t, err)
		}
		want(one, fmt.Sprint(i))
		want(two, fmt.Sprint(i))
	}
	resp, err := two.Txn(ctx).If(clientv3.Compare(value("l/1"), "=", "3")).Then(opPut("l/1", "txn"), opPut("l/2", "txn")).Commit()
	if err != nil || !resp.Succeeded {
		t.Errorf("Commit() of a client that does not own the keys = %v, %v, want it done", resp, err)
	}
	want(one, "txn")
	del, err := two.Delete(ctx, "l/", clientv3.WithPrefix())
	if err != nil || del.Deleted != 2 {
		t.Errorf("Delete(l/) = %v, %v, want 2 keys", del, err)
	}
	want(one, "")
}

// A client in a namespace sees that alone: keys, transactions, watches, leases.
func keepsToNamespace(t *testing.T, a, b *clientv3.Client) {
	ctx := deadline(t)
	kv, lease := namespace.NewKV(a, "ns/"), namespace.NewLease(a, "ns/")
	granted, err := lease.Grant(ctx, 100)
	must(t, err)
	resp, err := kv.Txn(ctx).If(clientv3.Compare(version("").WithPrefix(), "=", 0)).Then(
		opPut("k", "1", clientv3.WithLease(granted.ID)),
		opTxn(conds{clientv3.Compare(version("k"), "=", 0)}, ops{opGet("", clientv3.WithPrefix())}, nil),
	).Commit()
	must(t, err)
	rev := resp.Header.GetRevision()
	if got, want := txnText(resp.Succeeded, resp.Responses), fmt.Sprintf("true[put txn:true[k=1@%d]]", rev); got != want {
		t.Errorf("Commit() in a namespace = %s, want %s", got, want)
	}
	left, err := lease.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys())
	if err != nil || len(left.Keys) != 1 || string(left.Keys[0]) != "k" {
		t.Errorf("TimeToLive() in a namespace = %v, %v, want the key k", left, err)
	}
	_, err = b.Put(ctx, "k", "outside")
	must(t, err)
	w := namespace.NewWatcher(b, "ns/") // to close it would close the client's
	if told := receives(ctx, t, w.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(rev))); len(told.Events) != 1 || string(told.Events[0].GetKv().GetKey()) != "k" {
		t.Errorf("a watch in a namespace tells %v, want the key k", told.Events)
	}
}

// Servers register endpoints, and clients hear of them.
func namesEndpoints(t *testing.T, a, b *clientv3.Client) {
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	register, err := endpoints.NewManager(a, "service")
	must(t, err)
	resolve, err := endpoints.NewManager(b, "service")
	must(t, err)
	must(t, register.AddEndpoint(ctx, "service/1", endpoints.Endpoint{Addr: "10.0.0.1:80"}))
	ch, err := resolve.NewWatchChannel(ctx)
	must(t, err)
	must(t, register.Update(ctx, []*endpoints.UpdateWithOpts{
		endpoints.NewAddUpdateOpts("service/2", endpoints.Endpoint{Addr: "10.0.0.2:80", Metadata: "green"}),
		endpoints.NewDeleteUpdateOpts("service/1"),
	}))
	known := make(map[string]string)
	for known["service/1"] != "" || known["service/2"] == "" {
		select {
		case ups := <-ch:
			for _, u := range ups {
				if delete(known, u.Key); u.Op == endpoints.Add {
					known[u.Key] = u.Endpoint.Addr
				}
			}
		case <-ctx.Done():
			t.Fatalf("a resolver knows %v, want service/2 alone", known)
		}
	}
	all, err := resolve.List(ctx)
	if err != nil || len(all) != 1 || all["service/2"].Addr != "10.0.0.2:80" || all["service/2"].Metadata != "green" {
		t.Errorf("List() = %v, %v, want service/2 alone", all, err)
	}
}

// Serializable reads through the ordering library never go back in time, whatever member answers.
func ordersReads(t *testing.T, c *clientv3.Client) {
	ctx := deadline(t)
	kv := ordering.NewKV(c, ordering.NewOrderViolationSwitchEndpointClosure(c))
	for i := range 20 {
		put, err := kv.Put(ctx, "o", fmt.Sprint(i))
		must(t, err)
		resp, err := kv.Get(ctx, "o", clientv3.WithSerializable())
		if err != nil || resp.Header.GetRevision() < put.Header.GetRevision() || string(resp.Kvs[0].GetValue()) != fmt.Sprint(i) {
			t.Errorf("Get() after write %d = %v, %v, want it at revision %d", i, resp, err, put.Header.GetRevision())
		}
	}
}

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
