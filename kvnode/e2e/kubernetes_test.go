package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// registry does what an API server's storage layer does: it creates objects, updates and deletes
// them on condition of their newest revision, lists them in pages of one revision, and
// watches on from a list.
type registry struct {
	c      *clientv3.Client
	prefix string
}

// write writes an object if its revision is rev, 0 for a new one. It returns the
// object's revision, and whether it wrote.
func (r registry) write(ctx context.Context, name, value string, rev int64, opts ...clientv3.OpOption) (int64, bool, error) {
	key := r.prefix + name
	resp, err := r.c.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", rev)).
		Then(clientv3.OpPut(key, value, opts...)).
		Else(clientv3.OpGet(key)).
		Commit()
	return found(resp, err)
}

// remove deletes an object if its revision is rev.
func (r registry) remove(ctx context.Context, name string, rev int64) (int64, bool, error) {
	key := r.prefix + name
	resp, err := r.c.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", rev)).
		Then(clientv3.OpDelete(key)).
		Else(clientv3.OpGet(key)).
		Commit()
	return found(resp, err)
}

func found(resp *clientv3.TxnResponse, err error) (int64, bool, error) {
	if err != nil || resp.Succeeded {
		return revision(resp), err == nil, err
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return 0, false, nil
	}
	return kvs[0].GetModRevision(), false, nil
}

// list reads all objects, limit at a time, as of the revision at which the first
// page was read, and calls between after each page.
func (r registry) list(ctx context.Context, limit int64, between func()) (names []string, rev int64, err error) {
	from, end := r.prefix, clientv3.GetPrefixRangeEnd(r.prefix)
	for {
		resp, err := r.c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(rev))
		if err != nil {
			return nil, 0, err
		}
		if rev == 0 {
			rev = resp.Header.GetRevision()
		}
		for _, kv := range resp.Kvs {
			names = append(names, string(kv.GetKey())[len(r.prefix):])
		}
		if !resp.More {
			return names, rev, nil
		}
		if int64(len(resp.Kvs)) != limit {
			return nil, 0, fmt.Errorf("a page has %d objects, want the limit %d", len(resp.Kvs), limit)
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].GetKey()) + "\x00"
		between()
	}
}

func eachRegistry(t *testing.T, test func(t *testing.T, r registry), flags ...string) {
	t.Helper()
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		client, err := c.Client()
		must(t, err)
		defer client.Close()
		test(t, registry{client, "/registry/pods/"})
	}, flags...)
}

// An update must name the object's newest revision.
func TestObjectsAreWrittenOptimistically(t *testing.T) {
	eachRegistry(t, func(t *testing.T, r registry) {
		ctx := deadline(t)
		expect := func(what string, wantOK bool, wantRev int64) func(int64, bool, error) {
			return func(rev int64, ok bool, err error) {
				t.Helper()
				if err != nil || ok != wantOK || !ok && rev != wantRev {
					t.Errorf("%s = %d, %v, %v, want done: %v, or refused with revision %d", what, rev, ok, err, wantOK, wantRev)
				}
			}
		}
		created, ok, err := r.write(ctx, "a", "1", 0)
		if err != nil || !ok {
			t.Fatalf("create = %v, %v, want it done", ok, err)
		}
		expect("create again", false, created)(r.write(ctx, "a", "other", 0))
		updated, ok, err := r.write(ctx, "a", "2", created)
		if err != nil || !ok || updated <= created {
			t.Errorf("update = %d, %v, %v, want it done after %d", updated, ok, err, created)
		}
		expect("update of an old revision", false, updated)(r.write(ctx, "a", "late", created))
		expect("delete of an old revision", false, updated)(r.remove(ctx, "a", created))
		expect("delete", true, 0)(r.remove(ctx, "a", updated))
		expect("update of a deleted object", false, 0)(r.write(ctx, "a", "late", updated))
	})
}

// A list is of one revision, also if keys are written and compacted between its pages.
// If that revision itself is compacted, the list fails with that error.
func TestListsAreOfOneRevision(t *testing.T) {
	eachRegistry(t, func(t *testing.T, r registry) {
		ctx := deadline(t)
		const objects, limit = 25, 4
		for i := range objects {
			_, _, err := r.write(ctx, fmt.Sprintf("pod-%02d", i), "1", 0)
			must(t, err)
		}
		page := 0
		names, rev, err := r.list(ctx, limit, func() {
			page++
			_, err := r.c.Put(ctx, fmt.Sprintf("%spod-%02d-new", r.prefix, 4*page+2), "new")
			must(t, err)
			_, err = r.c.Delete(ctx, fmt.Sprintf("%spod-%02d", r.prefix, objects-page))
			must(t, err)
		})
		if err != nil || len(names) != objects {
			t.Fatalf("list = %v, %v, want the %d objects of its first page's revision", names, err, objects)
		}
		// What the list has is still there at the revision to which the rest was compacted.
		_, err = r.c.Compact(ctx, rev)
		must(t, err)
		resp, err := r.c.Get(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithCountOnly())
		if err != nil || resp.Count != objects {
			t.Errorf("count at revision %d = %v, %v, want %d", rev, resp, err, objects)
		}
		_, err = r.c.Compact(ctx, rev+2)
		must(t, err)
		_, err = r.c.Get(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithLimit(limit))
		if !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("page of a compacted list = %v, want %v", err, rpctypes.ErrCompacted)
		}
	})
}

// watched is what a watcher's cache holds.
type watched struct {
	t     *testing.T
	ch    clientv3.WatchChan
	names map[string]int64 // with mod revisions
	rev   int64            // of the last event or bookmark
}

// until follows the watch until it has come to rev, by an event or a bookmark.
func (w *watched) until(ctx context.Context, rev int64, bookmark func() error) {
	w.t.Helper()
	for w.rev < rev {
		select {
		case resp, ok := <-w.ch:
			if !ok || resp.Err() != nil {
				w.t.Fatalf("watch ends at revision %d: %v", w.rev, resp.Err())
			}
			if resp.IsProgressNotify() {
				w.rev = max(w.rev, resp.Header.GetRevision())
			}
			for _, e := range resp.Events {
				w.event(e)
			}
		case <-time.After(100 * time.Millisecond):
			must(w.t, bookmark())
		case <-ctx.Done():
			w.t.Fatalf("watch has come to revision %d, want %d", w.rev, rev)
		}
	}
}

func (w *watched) event(e *clientv3.Event) {
	w.t.Helper()
	key, rev := string(e.GetKv().GetKey()), e.GetKv().GetModRevision()
	if rev < w.rev {
		w.t.Errorf("event of revision %d comes after %d", rev, w.rev)
	}
	if had := w.names[key]; !e.IsCreate() && e.GetPrevKv().GetModRevision() != had {
		w.t.Errorf("the previous revision of %s is %d, says the event, want %d", key, e.GetPrevKv().GetModRevision(), had)
	}
	w.rev = rev
	if delete(w.names, key); e.GetType() == clientv3.EventTypePut {
		w.names[key] = rev
	}
}

// A cache that lists and then watches ends up with the current state, although history is
// compacted behind it. Bookmarks carry it past revisions of other keys.
func TestCachesFollowFromAList(t *testing.T) {
	eachRegistry(t, func(t *testing.T, r registry) {
		ctx := deadline(t)
		for i := range 10 {
			_, _, err := r.write(ctx, fmt.Sprintf("pod-%d", i), "1", 0)
			must(t, err)
		}
		resp, err := r.c.Get(ctx, r.prefix, clientv3.WithPrefix())
		must(t, err)
		w := &watched{t: t, names: make(map[string]int64), rev: resp.Header.GetRevision()}
		for _, kv := range resp.Kvs {
			w.names[string(kv.GetKey())] = kv.GetModRevision()
		}
		watching := clientv3.WithRequireLeader(ctx)
		w.ch = r.c.Watch(watching, r.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.rev+1), clientv3.WithPrevKV(), clientv3.WithProgressNotify())
		bookmark := func() error { return r.c.RequestProgress(watching) }
		w.until(ctx, w.rev, bookmark)
		for i := range 100 {
			key := fmt.Sprintf("%spod-%d", r.prefix, i%13)
			if i%5 == 0 {
				_, err = r.c.Delete(ctx, key)
			} else {
				_, err = r.c.Put(ctx, key, fmt.Sprint(i))
			}
			must(t, err)
			put, err := r.c.Put(ctx, "/registry/events/e", fmt.Sprint(i))
			must(t, err)
			if i%20 == 19 {
				w.until(ctx, put.Header.GetRevision(), bookmark)
				_, err := r.c.Compact(ctx, put.Header.GetRevision())
				must(t, err)
			}
		}
		resp, err = r.c.Get(ctx, r.prefix, clientv3.WithPrefix())
		must(t, err)
		want := make(map[string]int64)
		for _, kv := range resp.Kvs {
			want[string(kv.GetKey())] = kv.GetModRevision()
		}
		if fmt.Sprint(w.names) != fmt.Sprint(want) {
			t.Errorf("the cache has %v, want %v", w.names, want)
		}
		late := r.compacted(ctx, 2)
		for late.CompactRevision < w.rev && errors.Is(late.Err(), rpctypes.ErrCompacted) {
			late = r.compacted(ctx, 2) // of a follower that has not applied the last compaction yet
		}
		if !errors.Is(late.Err(), rpctypes.ErrCompacted) || late.CompactRevision != w.rev {
			t.Errorf("watch of compacted history = %v at %d, want %v at %d", late.Err(), late.CompactRevision, rpctypes.ErrCompacted, w.rev)
		}
	})
}

// compacted is the first answer to a watch from a revision on.
func (r registry) compacted(ctx context.Context, rev int64) clientv3.WatchResponse {
	return <-r.c.Watch(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev))
}

// Events and leases of their own last as long as their lease, and a watcher
// hears of their end.
func TestObjectsEndWithTheirLease(t *testing.T) {
	eachRegistry(t, func(t *testing.T, r registry) {
		ctx := deadline(t)
		begun := time.Now()
		lease, err := r.c.Grant(ctx, 4) // seconds, in which a busy machine writes
		must(t, err)
		var rev int64
		for i := range 3 {
			rev, _, err = r.write(ctx, fmt.Sprint("event-", i), "1", 0, clientv3.WithLease(lease.ID))
			must(t, err)
		}
		_, _, err = r.write(ctx, "pod", "1", 0)
		must(t, err)
		end := <-r.c.Watch(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+2))
		if len(end.Events) != 3 || end.Events[0].GetKv().GetModRevision() != end.Events[2].GetKv().GetModRevision() {
			t.Errorf("the lease's end is told as %v, want 3 deletions in one revision", end.Events)
		}
		if took := time.Since(begun); took < 4*time.Second {
			t.Errorf("keys with a lease of 4s ended after %v", took)
		}
		resp, err := r.c.Get(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil || len(resp.Kvs) != 1 {
			t.Errorf("Get() = %v, %v, want the object without a lease", resp, err)
		}
	}, electsSoon)
}

// revision returns the revision of a response, if there is one.
func revision(resp *clientv3.TxnResponse) int64 {
	if resp == nil {
		return 0
	}
	return resp.Header.GetRevision()
}
