package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/testcluster"
)

// locker is a member's Lock service through the stubs that etcd generates.
func locker(c *clientv3.Client) v3lockpb.LockClient {
	return v3lockpb.NewLockClient(c.ActiveConnection())
}

// wantStatus fails unless err has that code and text.
func wantStatus(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != text {
		t.Errorf("%s = %v, want %v %q", what, err, code, text)
	}
}

// granted grants a TTL lease without keep-alives.
func granted(t *testing.T, c *clientv3.Client, ttl int64) int64 {
	t.Helper()
	resp, err := c.Grant(deadline(t), ttl)
	must(t, err)
	return int64(resp.ID)
}

// keysOf returns the keys with a prefix, oldest first.
func keysOf(t *testing.T, c *clientv3.Client, prefix string) (keys []string) {
	t.Helper()
	resp, err := c.Get(deadline(t), prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	must(t, err)
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.GetKey()))
	}
	return keys
}

// inLine waits until so many keys have the prefix, and returns them.
func inLine(t *testing.T, c *clientv3.Client, prefix string, n int) []string {
	t.Helper()
	for ctx := deadline(t); ; {
		keys := keysOf(t, c, prefix)
		if len(keys) == n {
			return keys
		}
		if ctx.Err() != nil {
			t.Fatalf("keys = %q, want %d", keys, n)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// result is what a call in the background has returned.
type result[T any] struct {
	resp *T
	err  error
}

// background calls f and waits until prefix has n keys. f must not have returned by then.
func background[T any](t *testing.T, c *clientv3.Client, prefix string, n int, f func() (*T, error)) <-chan result[T] {
	t.Helper()
	done := make(chan result[T], 1)
	go func() {
		resp, err := f()
		done <- result[T]{resp, err}
	}()
	inLine(t, c, prefix, n)
	select {
	case r := <-done:
		t.Fatalf("answer = %v, %v, want it to wait", r.resp, r.err)
	case <-time.After(50 * time.Millisecond):
	}
	return done
}

// Clients of the service at two members and clients that lock by themselves exclude
// each other and are served in order.
func TestLockService(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		lease := granted(t, a, 60)
		first, err := locker(a).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l"), Lease: lease})
		must(t, err)
		if want := fmt.Sprintf("l/%x", lease); string(first.GetKey()) != want {
			t.Errorf("Lock() = %q, want %q", first.GetKey(), want)
		}
		kv, err := b.Get(ctx, string(first.GetKey()))
		must(t, err)
		if h := first.GetHeader(); kv.Kvs[0].GetCreateRevision() != h.GetRevision() || h.GetMemberId() == 0 || h.GetClusterId() == 0 || h.GetRaftTerm() == 0 {
			t.Errorf("header = %v of a key created at %d, want that and all the rest", h, kv.Kvs[0].GetCreateRevision())
		}
		second := background(t, a, "l/", 2, func() (*v3lockpb.LockResponse, error) {
			return locker(b).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l")})
		})
		mutex := concurrency.NewMutex(session(t, a, 60), "l")
		third := background(t, a, "l/", 3, func() (*struct{}, error) { return nil, mutex.Lock(ctx) })

		_, err = locker(b).Unlock(ctx, &v3lockpb.UnlockRequest{Key: first.GetKey()})
		must(t, err)
		r := <-second
		must(t, r.err)
		if r.resp.GetHeader().GetRevision() <= first.GetHeader().GetRevision() {
			t.Errorf("the second header is of revision %d, want more than %d", r.resp.GetHeader().GetRevision(), first.GetHeader().GetRevision())
		}
		if got := keysOf(t, a, "l/"); len(got) != 2 || got[0] != string(r.resp.GetKey()) {
			t.Errorf("keys = %q, want %q first of two", got, r.resp.GetKey())
		}
		_, err = locker(a).Unlock(ctx, &v3lockpb.UnlockRequest{Key: r.resp.GetKey()})
		must(t, err)
		must(t, (<-third).err)
		must(t, mutex.Unlock(ctx))
	})
}

// A caller that gives up, or runs into its deadline, leaves the queue.
func TestLockServiceForgetsCancelledWaiters(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		a, b := memberClients(t, c)
		held, err := locker(a).Lock(deadline(t), &v3lockpb.LockRequest{Name: []byte("l")})
		must(t, err)
		ctx, cancel := context.WithCancel(deadline(t))
		given := background(t, a, "l/", 2, func() (*v3lockpb.LockResponse, error) {
			return locker(b).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l")})
		})
		cancel()
		wantStatus(t, "Lock() of a caller that gave up", (<-given).err, codes.Canceled, "context canceled")
		ctx, cancel = context.WithTimeout(deadline(t), 300*time.Millisecond)
		defer cancel()
		_, err = locker(b).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l"), Lease: granted(t, a, 60)})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("Lock() past its deadline = %v, want DeadlineExceeded", err)
		}
		if got := inLine(t, a, "l/", 1); got[0] != string(held.GetKey()) {
			t.Errorf("keys = %q, want the holder's", got)
		}
	})
}

// When the TTL lease of a lock expires or is revoked, the next caller gets the lock.
func TestLockServiceLocksGoWithTheirLeases(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		lease := granted(t, a, 60)
		for _, id := range []int64{granted(t, a, 4), lease} {
			_, err := locker(a).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l"), Lease: id})
			must(t, err)
		}
		next := background(t, a, "l/", 2, func() (*v3lockpb.LockResponse, error) {
			return locker(b).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l")})
		})
		_, err := a.Revoke(ctx, clientv3.LeaseID(lease))
		must(t, err)
		r := <-next
		must(t, r.err)
		if got := keysOf(t, a, "l/"); !slices.Equal(got, []string{string(r.resp.GetKey())}) {
			t.Errorf("keys = %q, want %q", got, r.resp.GetKey())
		}
	}, electsSoon)
}

// What cannot be is refused with the same codes and texts.
func TestLockServiceRefuses(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		_, b := memberClients(t, c)
		for _, lease := range []int64{-1, 77} {
			_, err := locker(b).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l"), Lease: lease})
			wantStatus(t, "Lock() of an unknown TTL lease", err, codes.Unknown, "etcdserver: requested lease not found")
		}
		_, err := locker(b).Unlock(ctx, new(v3lockpb.UnlockRequest))
		wantStatus(t, "Unlock() of no key", err, codes.Unknown, "etcdserver: key is not provided")
		_, err = locker(b).Lock(ctx, &v3lockpb.LockRequest{Name: make([]byte, 512<<10)})
		wantStatus(t, "Lock() of a name of 512 KiB", err, codes.Unknown, "etcdserver: request is too large")
		// There is no such key, and that is how an unlocked lock looks.
		_, err = locker(b).Unlock(ctx, &v3lockpb.UnlockRequest{Key: []byte("l/none")})
		must(t, err)
		// A lock may have no name.
		nameless, err := locker(b).Lock(ctx, &v3lockpb.LockRequest{Lease: granted(t, b, 60)})
		if err != nil || len(nameless.GetKey()) < 2 || nameless.GetKey()[0] != '/' {
			t.Errorf("Lock() of no name = %v, %v, want a key below /", nameless, err)
		}
	})
}

// A client that waits at a follower keeps waiting when the leader dies, and is served.
func TestLockServiceOutlivesTheLeader(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		c := startCluster(t, p)
		ctx := deadline(t)
		leader, err := c.Leader(ctx)
		must(t, err)
		i := slices.Index(c.Members(), leader)
		all := clients(t, c.Members())
		waiter, other := all[(i+1)%3], all[(i+2)%3]
		held, err := locker(other).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l"), Lease: granted(t, other, 60)})
		must(t, err)
		next := background(t, other, "l/", 2, func() (*v3lockpb.LockResponse, error) {
			return locker(waiter).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l"), Lease: granted(t, other, 60)})
		})
		must(t, leader.Kill())
		for {
			_, err = locker(other).Unlock(ctx, &v3lockpb.UnlockRequest{Key: held.GetKey()})
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		r := <-next
		must(t, r.err)
		if got := keysOf(t, other, "l/"); !slices.Equal(got, []string{string(r.resp.GetKey())}) {
			t.Errorf("keys = %q, want %q", got, r.resp.GetKey())
		}
	})
}

// elector is a member's Election service through the stubs that etcd generates.
func elector(c *clientv3.Client) v3electionpb.ElectionClient {
	return v3electionpb.NewElectionClient(c.ActiveConnection())
}

// next fails unless the observer's next value is that of key.
func next(t *testing.T, o v3electionpb.Election_ObserveClient, key *v3electionpb.LeaderKey, value string) {
	t.Helper()
	resp, err := o.Recv()
	if err != nil {
		t.Fatal(err)
	}
	kv := resp.GetKv()
	if string(kv.GetValue()) != value || string(kv.GetKey()) != string(key.GetKey()) || kv.GetCreateRevision() != key.GetRev() || kv.GetLease() != key.GetLease() {
		t.Errorf("Observe() told %v, want %q of %v", resp, value, key)
	}
	if h := resp.GetHeader(); h.GetRevision() < kv.GetModRevision() || h.GetMemberId() == 0 {
		t.Errorf("Observe() told it with the header %v, want one of that change or after it", h)
	}
}

// An election from its beginning to its end, observed at two members.
func TestElectionService(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		name := &v3electionpb.LeaderRequest{Name: []byte("e")}
		_, err := elector(a).Leader(ctx, name)
		wantStatus(t, "Leader() without a leader", err, codes.Unknown, "election: no leader")
		early, err := elector(b).Observe(ctx, name)
		must(t, err)

		lease := granted(t, a, 60)
		first, err := elector(a).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: lease, Value: []byte("a1")})
		must(t, err)
		key := first.GetLeader()
		if string(key.GetName()) != "e" || string(key.GetKey()) != fmt.Sprintf("e/%x", lease) || key.GetRev() != first.GetHeader().GetRevision() || key.GetLease() != lease {
			t.Errorf("Campaign() = %v, want the key of TTL lease %x", first, lease)
		}
		next(t, early, key, "a1")
		second := background(t, a, "e/", 2, func() (*v3electionpb.CampaignResponse, error) {
			return elector(b).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Value: []byte("b1")})
		})
		_, err = elector(b).Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: key, Value: []byte("a2")})
		must(t, err)
		next(t, early, key, "a2")
		late, err := elector(a).Observe(ctx, name)
		must(t, err)
		next(t, late, key, "a2")
		leader, err := elector(b).Leader(ctx, name)
		if err != nil || string(leader.GetKv().GetValue()) != "a2" || leader.GetKv().GetCreateRevision() != key.GetRev() {
			t.Errorf("Leader() = %v, %v, want a2 of %v", leader, err, key)
		}

		_, err = elector(b).Resign(ctx, &v3electionpb.ResignRequest{Leader: key})
		must(t, err)
		r := <-second
		must(t, r.err)
		for _, o := range []v3electionpb.Election_ObserveClient{early, late} {
			next(t, o, r.resp.GetLeader(), "b1")
		}
		_, err = elector(a).Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: key, Value: []byte("a3")})
		wantStatus(t, "Proclaim() after Resign()", err, codes.Unknown, "election: not leader")
		_, err = elector(a).Resign(ctx, &v3electionpb.ResignRequest{Leader: key})
		must(t, err)
	})
}

// A candidate that gives up leaves the line, and leadership goes with its TTL lease.
func TestElectionServiceForgetsCancelledWaiters(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		a, b := memberClients(t, c)
		lease := granted(t, a, 5) // seconds, after the second is in line
		_, err := elector(a).Campaign(deadline(t), &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: lease})
		must(t, err)
		ctx, cancel := context.WithCancel(deadline(t))
		given := background(t, a, "e/", 2, func() (*v3electionpb.CampaignResponse, error) {
			return elector(b).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: granted(t, a, 60)})
		})
		cancel()
		wantStatus(t, "Campaign() of a caller that gave up", (<-given).err, codes.Canceled, "context canceled")
		r, err := elector(b).Campaign(deadline(t), &v3electionpb.CampaignRequest{Name: []byte("e")})
		must(t, err)
		if got := inLine(t, a, "e/", 1); got[0] != string(r.GetLeader().GetKey()) {
			t.Errorf("keys = %q, want %q", got, r.GetLeader().GetKey())
		}
	}, electsSoon)
}

// What cannot be is refused with the same codes and texts.
func TestElectionServiceRefuses(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		_, b := memberClients(t, c)
		e := elector(b)
		_, err := e.Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: 77})
		wantStatus(t, "Campaign() of an unknown TTL lease", err, codes.Unknown, "etcdserver: requested lease not found")
		for what, leader := range map[string]*v3electionpb.LeaderKey{
			`"leader" field must be provided`: nil,
			"etcdserver: key is not provided": {},
		} {
			_, err = e.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: leader})
			wantStatus(t, "Proclaim()", err, codes.Unknown, what)
			_, err = e.Resign(ctx, &v3electionpb.ResignRequest{Leader: leader})
			wantStatus(t, "Resign()", err, codes.Unknown, what)
		}
		none := &v3electionpb.LeaderKey{Name: []byte("e"), Key: []byte("e/none"), Rev: 5, Lease: granted(t, b, 60)}
		_, err = e.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: none})
		wantStatus(t, "Proclaim() without a leader", err, codes.Unknown, "election: not leader")
		_, err = e.Resign(ctx, &v3electionpb.ResignRequest{Leader: none})
		must(t, err)
	})
}
