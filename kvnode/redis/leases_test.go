package redis_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode/redis"
)

// countedLease counts grants, and holds each back until that many are under way.
type countedLease struct {
	pb.LeaseClient

	grants  atomic.Int64
	atOnce  int64
	enough  chan struct{}
	closing sync.Once
}

func (l *countedLease) LeaseGrant(ctx context.Context, in *pb.LeaseGrantRequest, opts ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
	if l.grants.Add(1) >= l.atOnce {
		l.closing.Do(func() { close(l.enough) })
	}
	select {
	case <-l.enough:
		return l.LeaseClient.LeaseGrant(ctx, in, opts...)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A lease that no key has is revoked, whichever gateway has granted it.
func TestGatewaysRevokeEachOthersLeases(t *testing.T) {
	etcd := startCluster(t)
	all := []*client{dial(t, startGateway(t, etcd)), dial(t, startGateway(t, etcd))}
	all[0].want("OK", "SET", "s", "v", "EX", "1000")
	for i := range 20 {
		all[i%2].want("1", "EXPIRE", "s", "1000")
	}
	wantLeases(t, etcd, 1)
}

// A write that replaces a key revokes its lease, though the other commands only ask whether the key exists.
func TestReplacedKeysRevokeTheirLeases(t *testing.T) {
	etcd := startCluster(t)
	c := dial(t, startGateway(t, etcd))
	c.want("OK", "SET", "k", "v", "EX", "1000")
	c.want("OK", "WATCH", "k")
	c.want("OK", "MULTI")
	c.want("QUEUED", "EXISTS", "k")
	c.want("QUEUED", "SET", "k", "w")
	c.want("[1 OK]", "EXEC")
	wantLeases(t, etcd, 0)
}

func wantLeases(t *testing.T, etcd *clientv3.Client, want int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		got, err := etcd.Leases(t.Context())
		if err == nil && len(got.Leases) == want {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("Leases() = %v, %v, want %d", got, err, want)
		}
	}
}

// The grants of a transaction are made at the same time, as the first would end before the last is made.
func TestGrantsOfAMULTI(t *testing.T) {
	etcd := startCluster(t)
	lease := &countedLease{LeaseClient: clientv3.RetryLeaseClient(etcd), atOnce: 16, enough: make(chan struct{})}
	c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.Lease = lease }))
	c.want("OK", "MULTI")
	for i := range 20 {
		c.want("QUEUED", "SET", fmt.Sprint(i), "v", "EX", "100")
	}
	c.want("[OK OK…", "EXEC")
}

// Clients that renew one key do not grant a lease for each conflict.
func TestGrantsForAHotKey(t *testing.T) {
	const clients, rounds = 100, 2
	etcd := startCluster(t)
	lease := &countedLease{LeaseClient: clientv3.RetryLeaseClient(etcd), enough: make(chan struct{})}
	addr := startGateway(t, etcd, func(cfg *redis.Config) { cfg.Lease = lease })
	dial(t, addr).want("OK", "SET", "hot", "v")
	var all sync.WaitGroup
	for range clients {
		c := dial(t, addr)
		all.Go(func() {
			for range rounds {
				if got := c.try("EXPIRE", "hot", "1000"); got != "1" {
					t.Errorf("EXPIRE: %s", got)
				}
			}
		})
	}
	all.Wait()
	if n := lease.grants.Load(); n > 2*clients*rounds {
		t.Errorf("%d grants for %d commands", n, clients*rounds)
	}
}

// conflictKV refuses writes a few times, as if another client had changed the key, and panics in a read.
type conflictKV struct {
	clientv3.KV

	left *atomic.Int64
}

type conflictTxn struct {
	clientv3.Txn

	left *atomic.Int64
}

func (kv conflictKV) Txn(ctx context.Context) clientv3.Txn {
	return conflictTxn{kv.KV.Txn(ctx), kv.left}
}

func (kv conflictKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if key == "panic" {
		panic("in a test")
	}
	return kv.KV.Get(ctx, key, opts...)
}

func (x conflictTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	return conflictTxn{x.Txn.If(cs...), x.left}
}

func (x conflictTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return conflictTxn{x.Txn.Then(ops...), x.left}
}

func (x conflictTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.left.Add(-1) >= 0 {
		return &clientv3.TxnResponse{}, nil
	}
	return x.Txn.Commit()
}

// A command is computed again until its time is over, and a panic ends no other connection.
func TestConflictsWithOtherClients(t *testing.T) {
	etcd := startCluster(t)
	var left atomic.Int64
	left.Store(150)
	addr := startGateway(t, etcd, func(cfg *redis.Config) { cfg.KV, cfg.Timeout = conflictKV{etcd.KV, &left}, patience })
	c := dial(t, addr)
	c.want("1", "INCR", "k")
	failing := dial(t, addr)
	failing.send(encode("GET", "panic"))
	failing.wantClosed("")
	c.want("1", "GET", "k")
}

// The values that many SETs of one transaction replace count as memory.
func TestReplacedValuesAreLimited(t *testing.T) {
	etcd := startCluster(t)
	c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.MaxConnMemory = 1_000_000 }))
	for i := range 40 {
		if _, err := etcd.Put(t.Context(), fmt.Sprint(i), strings.Repeat("a", 100_000)); err != nil {
			t.Fatal(err)
		}
	}
	c.want("OK", "MULTI")
	for i := range 40 {
		c.want("QUEUED", "SET", fmt.Sprint(i), "v")
	}
	c.want("-ERR bytes of a connection: 10…", "EXEC")
	// What only asks for keys needs no values.
	c.want("20", append([]string{"EXISTS"}, strings.Fields("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19")...)...)
}
