package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kvclient "github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/redis"
)

// lossyKV applies writes, or drops them, and returns an error for each. Without an error, it applies each twice.
type lossyKV struct {
	clientv3.KV

	err    error
	drop   bool
	writes atomic.Int64
}

func (kv *lossyKV) Txn(ctx context.Context) clientv3.Txn {
	return &lossyTxn{Txn: kv.KV.Txn(ctx), again: kv.KV.Txn(ctx), kv: kv}
}

type lossyTxn struct {
	clientv3.Txn

	again  clientv3.Txn
	kv     *lossyKV
	writes bool
}

func (x *lossyTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	x.Txn, x.again = x.Txn.If(cs...), x.again.If(cs...)
	return x
}

func (x *lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		x.writes = x.writes || !op.IsGet()
	}
	x.Txn, x.again = x.Txn.Then(ops...), x.again.Then(ops...)
	return x
}

func (x *lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	if !x.writes {
		return x.Txn.Commit()
	}
	x.kv.writes.Add(1)
	if !x.kv.drop {
		if _, err := x.Txn.Commit(); err != nil {
			return nil, err
		}
	}
	if x.kv.err == nil {
		return x.again.Commit()
	}
	return nil, x.kv.err
}

func TestUnknownOutcome(t *testing.T) {
	etcd := startCluster(t)
	for _, lost := range []error{
		rpctypes.ErrTimeoutDueToConnectionLost,
		rpctypes.ErrLeaderChanged,
		status.Error(codes.Unavailable, "outcome unknown"),
		status.Error(codes.ResourceExhausted, "grpc: received message larger than max"),
		context.DeadlineExceeded,
	} {
		t.Run(lost.Error(), func(t *testing.T) {
			if _, err := etcd.Delete(t.Context(), "u", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			kv := &lossyKV{KV: etcd.KV, err: lost}
			c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.KV = kv }))
			writes := int64(0)
			once := func(args ...string) {
				t.Helper()
				c.want("-UNKNOWN…", args...)
				if writes++; kv.writes.Load() != writes {
					t.Fatalf("%.60q: %d writes in all, want %d", args, kv.writes.Load(), writes)
				}
			}
			once("SET", "u", "me", "NX", "PX", "30000")
			c.want("me", "GET", "u") // its lease is not revoked
			once("EVAL", renew, "1", "u", "me", "90000")
			if ms, err := strconv.Atoi(c.do("PTTL", "u")); err != nil || ms <= 30000 {
				t.Errorf("PTTL after a renewal: %d, %v", ms, err)
			}
			once("EVAL", release, "1", "u", "me")
			c.want("nil", "GET", "u")
			once("SET", "u", "5", "EX", "30")
			once("INCR", "u")
			once("KV.LOCK", "u:lock", "me", "PX", "30000")
			c.script("MULTI => OK\nINCR u => QUEUED\nINCR u => QUEUED")
			once("EXEC")
			c.want("8", "GET", "u")
			c.send(encode("SET", "u:a", "1") + encode("SET", "u:b", "2")) // one transaction or two
			for range 2 {
				if got := c.read(); !strings.HasPrefix(got, "-UNKNOWN") {
					t.Errorf("pipelined SET: %q", got)
				}
			}
			if n := kv.writes.Load() - writes; n < 1 || n > 2 {
				t.Errorf("two pipelined SETs made %d writes", n)
			}
			c.want("[1 2]", "MGET", "u:a", "u:b")
		})
	}
}

// etcd applies the write that reaches its quota, and answers ErrNoSpace: the lease of the key must stay.
func TestAWriteWithoutSpaceMayHaveTakenEffect(t *testing.T) {
	etcd := startCluster(t)
	kv := &lossyKV{KV: etcd.KV, err: rpctypes.ErrNoSpace}
	c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.KV = kv }))
	c.want("-UNKNOWN…", "SET", "k", "me", "NX", "PX", "30000")
	got, err := etcd.Get(t.Context(), "k")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("Get() = %v, %v, want the key", got, err)
	}
	if left, err := etcd.TimeToLive(t.Context(), clientv3.LeaseID(got.Kvs[0].GetLease())); err != nil || left.TTL <= 0 {
		t.Errorf("TimeToLive() = %v, %v, want a lease", left, err)
	}
}

// TestRejectedWrite checks the errors which prove that a write was not applied.
func TestRejectedWrite(t *testing.T) {
	etcd := startCluster(t)
	for _, err := range []error{
		rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps, rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader,
		rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrLeaseNotFound,
	} {
		kv := &lossyKV{KV: etcd.KV, err: err, drop: true}
		c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.KV = kv }))
		c.want("-ERR nothing was written…", "SET", "k", "me", "NX", "PX", "30000")
		c.want("-ERR nothing was written…", "SET", "k", "me")
		c.want("-ERR nothing was written…", "INCR", "k")
		if n := kv.writes.Load(); n != 3 {
			t.Errorf("%v: %d writes, want 3", err, n)
		}
	}
}

func TestAFailedReadEndsEXEC(t *testing.T) {
	etcd := startCluster(t)
	dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.Lease = &slowLease{LeaseClient: clientv3.RetryLeaseClient(etcd)} })).script(`
		SET e 1 EX 100 => OK
		MULTI => OK
		SET other 1 => QUEUED
		TTL e => QUEUED
		EXEC => -ERR nothing was written…
		GET other => nil`)
}

// A write that is sent twice may have its lease from the first time.
func TestARepeatedWriteKeepsItsLease(t *testing.T) {
	etcd := startCluster(t)
	lease := &slowLease{LeaseClient: clientv3.RetryLeaseClient(etcd)}
	c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.KV, cfg.Lease = &lossyKV{KV: etcd.KV}, lease }))
	c.want("OK", "SET", "k", "v", "EX", "1000")
	c.want("-UNKNOWN…", "SET", "l", "me", "NX", "PX", "100000")
	c.want("[v me]", "MGET", "k", "l")
	if n := lease.asked.Load(); n != 0 {
		t.Errorf("%d revocations, want none", n)
	}
}

// lateKV answers each write as etcd does when the time of the server is over.
type lateKV struct {
	pb.UnimplementedKVServer

	writes atomic.Int64
}

func (kv *lateKV) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	kv.writes.Add(1)
	return nil, context.DeadlineExceeded
}

func TestALateWriteIsNotRepeated(t *testing.T) {
	l, kv, g := listen(t), &lateKV{}, grpc.NewServer()
	pb.RegisterKVServer(g, kv)
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Addr().String()}, DialOptions: kvclient.DialOptions(), DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	dial(t, startGateway(t, etcd)).want("-UNKNOWN…", "SET", "k", "v")
	if n := kv.writes.Load(); n != 1 {
		t.Errorf("the write was sent %d times, want once", n)
	}
}

// slowLease revokes once it is allowed to, and knows no TTL.
type slowLease struct {
	pb.LeaseClient

	asked, revoked atomic.Int64
	allowed        chan struct{}
}

func (l *slowLease) LeaseRevoke(ctx context.Context, in *pb.LeaseRevokeRequest, opts ...grpc.CallOption) (*pb.LeaseRevokeResponse, error) {
	l.asked.Add(1)
	select {
	case <-l.allowed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer l.revoked.Add(1)
	return l.LeaseClient.LeaseRevoke(ctx, in, opts...)
}

func (*slowLease) LeaseTimeToLive(context.Context, *pb.LeaseTimeToLiveRequest, ...grpc.CallOption) (*pb.LeaseTimeToLiveResponse, error) {
	return nil, status.Error(codes.Unavailable, "gone")
}

// TestRevocations checks that a command waits while too many revocations are under way, and that none is forgotten.
func TestRevocations(t *testing.T) {
	etcd := startCluster(t)
	lease := &slowLease{LeaseClient: clientv3.RetryLeaseClient(etcd), allowed: make(chan struct{})}
	c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.Lease, cfg.Timeout = lease, patience }))
	const renewals, atOnce = 40, 32
	var sets atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range renewals + 1 {
			if got := c.try("SET", "k", fmt.Sprint(i), "EX", "1000"); got != "OK" {
				t.Errorf("SET %d: %q", i, got)
			}
			sets.Add(1)
		}
	}()
	wait := func(what string, n *atomic.Int64, want int64) {
		t.Helper()
		for began := time.Now(); n.Load() < want; time.Sleep(time.Millisecond) {
			if time.Since(began) > patience {
				t.Fatalf("%d %s, want %d", n.Load(), what, want)
			}
		}
	}
	wait("revocations begin", &lease.asked, atOnce)
	wait("SETs", &sets, atOnce+1)
	for { // the next SET is committed, and waits
		got, err := etcd.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Kvs[0].GetValue()) == fmt.Sprint(atOnce+1) {
			break
		}
	}
	if n := sets.Load(); n != atOnce+1 {
		t.Errorf("%d SETs are answered while %d revocations are under way, want %d", n, atOnce, atOnce+1)
	}
	close(lease.allowed)
	<-done
	wait("leases are revoked", &lease.revoked, renewals)
	got, err := etcd.Leases(t.Context())
	if err != nil || len(got.Leases) != 1 {
		t.Errorf("Leases() = %v, %v, want that of the key", got, err)
	}
}
