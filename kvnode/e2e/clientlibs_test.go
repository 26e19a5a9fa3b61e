package e2e

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/leasing"
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

// Serializable reads through the ordering library never go back in time, whatever
// member answers.
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
