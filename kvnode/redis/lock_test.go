package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/redis"
)

// The texts of redsync v4.18.1.
const (
	redsyncDelete = `
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
`
	redsyncDeleteSHA = "e950836ed1e694540c503ef9972b8de518044d3b"
	redsyncTouch     = `
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
	else
		return 0
	end
`
	redsyncTouchSHA = "d75bb8b5bd13532ddedd17762e772346e39b321e"
	redsyncTouchSet = `
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
	elseif redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX") then
		return 1
	else
		return 0
	end
`
	redsyncTouchSetSHA = "b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79"
)

// The texts of redlock 4.2.0 for node, which 5.0.0-beta.2 has with other indents.
const (
	redlockLock = `
	-- Return 0 if an entry already exists.
	for i, key in ipairs(KEYS) do
		if redis.call("exists", key) == 1 then
			return 0
		end
	end

	-- Create an entry for each provided key.
	for i, key in ipairs(KEYS) do
		redis.call("set", key, ARGV[1], "PX", ARGV[2])
	end

	-- Return the number of entries added.
	return #KEYS
`
	redlockUnlock = `
	local count = 0
	for i, key in ipairs(KEYS) do
		-- Only remove entries for *this* lock value.
		if redis.call("get", key) == ARGV[1] then
			redis.pcall("del", key)
			count = count + 1
		end
	end

	-- Return the number of entries removed.
	return count
`
	redlockExtend = `
	-- Return 0 if an entry exists with a *different* lock value.
	for i, key in ipairs(KEYS) do
		if redis.call("get", key) ~= ARGV[1] then
			return 0
		end
	end

	-- Update the entry for each provided key.
	for i, key in ipairs(KEYS) do
		redis.call("set", key, ARGV[1], "PX", ARGV[2])
	end

	-- Return the number of entries updated.
	return #KEYS
`
)

// The texts of Redis' documentation of SET.
const (
	release = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	renew   = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
)

func (c *client) want(want string, args ...string) {
	c.t.Helper()
	got := c.do(args...)
	prefix, cut := strings.CutSuffix(want, "…")
	if got != want && !(cut && strings.HasPrefix(got, prefix)) {
		c.t.Errorf("%.60q: %.200q, want %q", args, got, want)
	}
}

// expire ends the TTL lease of a key, as the end of its time does.
func expire(t *testing.T, etcd *clientv3.Client, key string) {
	t.Helper()
	got, err := etcd.Get(t.Context(), key)
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].GetLease() == 0 {
		t.Fatalf("%s: %v, %v, want a key with a lease", key, got, err)
	}
	if _, err := etcd.Revoke(t.Context(), clientv3.LeaseID(got.Kvs[0].GetLease())); err != nil {
		t.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	etcd := startCluster(t)
	addr := startGateway(t, etcd)
	t.Run("one holder", func(t *testing.T) { testOneHolder(t, addr) })
	t.Run("renewal", func(t *testing.T) {
		holder, other := dial(t, addr), dial(t, addr)
		holder.want("OK", "SET", "r", "me", "NX", "PX", "30000")
		other.want("nil", "SET", "r", "you", "NX", "PX", "30000")
		holder.want("1", "EVAL", renew, "1", "r", "me", "60000")
		if ms, err := strconv.Atoi(holder.do("PTTL", "r")); err != nil || ms <= 30000 {
			t.Errorf("PTTL after a renewal: %d, %v, want above 30000", ms, err)
		}
		other.want("0", "EVAL", renew, "1", "r", "you", "60000")
		expire(t, etcd, "r")
		holder.want("0", "EVAL", renew, "1", "r", "me", "60000")
		holder.want("nil", "GET", "r")
		other.want("OK", "SET", "r", "you", "NX", "PX", "30000")
		holder.want("0", "EVAL", renew, "1", "r", "me", "60000")
		holder.want("0", "EVAL", release, "1", "r", "me")
		other.want("you", "GET", "r")
		other.want("1", "EVAL", release, "1", "r", "you")
		other.want("nil", "GET", "r")
	})
	t.Run("expiry", func(t *testing.T) {
		c := dial(t, addr)
		began := time.Now()
		c.want("OK", "SET", "e", "me", "NX", "PX", "1")
		for c.do("GET", "e") != "nil" {
			if time.Since(began) > patience {
				t.Fatal("the key does not end")
			}
		}
		if took := time.Since(began); took < time.Second {
			t.Errorf("PX 1 ended after %v, want a second at least", took)
		}
		c.want("0", "EVAL", release, "1", "e", "me")
	})
	t.Run("token", func(t *testing.T) { testToken(t, etcd, addr) })
}

// testOneHolder lets connections compete for a lock. A holder notes that it holds the lock after the reply, and
// that it does not before the release, so two notes at once are two holders.
func testOneHolder(t *testing.T, addr string) {
	const workers, rounds = 6, 6
	var held, last atomic.Int64
	var all sync.WaitGroup
	for me := range int64(workers) {
		c := dial(t, addr)
		owner := fmt.Sprint("owner", me)
		all.Go(func() {
			for n := 0; n < rounds && !t.Failed(); {
				if me%2 == 0 {
					switch got := c.try("SET", "l", owner, "NX", "PX", "60000"); got {
					case "OK":
					case "nil":
						continue
					default:
						t.Errorf("SET NX: %q", got)
						return
					}
				} else {
					got := c.try("KV.LOCK", "l", owner, "PX", "60000")
					if got == "nil" {
						continue
					}
					token, err := strconv.ParseInt(got, 10, 64)
					if before := last.Swap(token); err != nil || token <= before {
						t.Errorf("token %s, %v after %d, want a larger one", got, err, before)
					}
				}
				if other := held.Swap(me + 1); other != 0 {
					t.Errorf("%s has the lock of owner%d", owner, other-1)
				}
				held.Store(0)
				if got := c.try("EVAL", release, "1", "l", owner); got != "1" {
					t.Errorf("release by the holder: %q", got)
				}
				n++
			}
		})
	}
	all.Wait()
}

func testToken(t *testing.T, etcd *clientv3.Client, addr string) {
	a, b := dial(t, addr), dial(t, addr)
	a.want("nil", "KV.REV", "t")
	first := a.do("KV.LOCK", "t", "a", "PX", "30000")
	a.want(first, "KV.REV", "t")
	a.want(first, "KV.LOCK", "t", "a", "PX", "30000") // it renews
	b.want("nil", "KV.LOCK", "t", "b", "PX", "30000")
	expire(t, etcd, "t")
	second := b.do("KV.LOCK", "t", "b", "PX", "30000")
	x, errX := strconv.ParseInt(first, 10, 64)
	y, errY := strconv.ParseInt(second, 10, 64)
	if errX != nil || errY != nil || y <= x {
		t.Errorf("tokens %q, then %q, want a larger one", first, second)
	}
	a.want("nil", "KV.LOCK", "t", "a", "PX", "30000")
	b.script(`
		MULTI => OK
		DEL t => QUEUED
		KV.LOCK t c PX 1000 => QUEUED
		EXEC => [1 -ERR nothing was locked: the same MULTI deletes the key before KV.LOCK]
		MULTI => OK
		KV.LOCK t c PX 1000 => QUEUED
		KV.LOCK t d PX 1000 => QUEUED
		GET t => QUEUED`)
	fields := strings.Fields(strings.Trim(b.do("EXEC"), "[]"))
	if len(fields) != 3 || fields[1] != "nil" || fields[2] != "c" {
		t.Errorf("KV.LOCK in MULTI: %q", fields)
	}
	b.want(fields[0], "KV.REV", "t")
	b.script(`
		KV.LOCK t c PX 0 => -ERR usage…
		KV.LOCK t c PX x => -ERR usage…
		KV.LOCK t c EX 10 => -ERR usage…
		KV.LOCK t c => -ERR wrong number…`)
}

func TestScriptsOfLockLibraries(t *testing.T) {
	etcd := startCluster(t)
	c := dial(t, startGateway(t, etcd))
	t.Run("redsync", func(t *testing.T) {
		c.want("OK", "SET", "s", "me", "NX", "PX", "30000")
		c.want("-NOSCRIPT…", "EVALSHA", redsyncTouchSHA, "1", "s", "me", "60000")
		c.want("1", "EVAL", redsyncTouch, "1", "s", "me", "60000")
		c.want("1", "EVALSHA", redsyncTouchSHA, "1", "s", "me", "60000")
		c.want("0", "EVALSHA", redsyncTouchSHA, "1", "s", "you", "60000")
		c.want("0", "EVAL", redsyncDelete, "1", "s", "you")
		c.want("1", "EVALSHA", redsyncDeleteSHA, "1", "s", "me")
		c.want("-1", "EVALSHA", redsyncDeleteSHA, "1", "s", "me")
		c.want(redsyncTouchSetSHA, "SCRIPT", "LOAD", redsyncTouchSet)
		c.want("1", "EVALSHA", redsyncTouchSetSHA, "1", "s", "me", "60000")
		c.want("1", "EVALSHA", redsyncTouchSetSHA, "1", "s", "me", "60000")
		c.want("0", "EVALSHA", redsyncTouchSetSHA, "1", "s", "you", "60000")
		c.want("me", "GET", "s")
	})
	t.Run("redlock", func(t *testing.T) {
		c.want("2", "EVAL", redlockLock, "2", "x", "y", "me", "30000")
		c.want("0", "EVAL", redlockLock, "2", "y", "z", "you", "30000")
		c.want("0", "EXISTS", "z")
		c.want("2", "EVAL", redlockExtend, "2", "x", "y", "me", "90000")
		if ms, err := strconv.Atoi(c.do("PTTL", "y")); err != nil || ms <= 30000 {
			t.Errorf("PTTL after the extension: %d, %v", ms, err)
		}
		c.want("0", "EVAL", redlockExtend, "2", "x", "y", "you", "90000")
		c.want("0", "EVAL", redlockUnlock, "2", "x", "y", "you")
		expire(t, etcd, "x")
		c.want("0", "EVAL", redlockExtend, "2", "x", "y", "me", "90000")
		c.want("1", "EVAL", redlockUnlock, "2", "x", "y", "me")
		c.want("0", "EXISTS", "x", "y")
		c.want("1", "EVAL", strings.ReplaceAll(redlockLock, "\t", "  "), "1", "x", "me", "30000")
	})
	t.Run("others", func(t *testing.T) {
		c.want("OK", "SET", "o", "me")
		for _, text := range []string{
			`return 1`,
			strings.Replace(release, "==", "~=", 1),
			strings.Replace(release, "ARGV[1]", "ARGV[2]", 1),
			"--[[\n" + release + "\n]]",
			release + " return 1",
		} {
			c.want("-ERR this gateway runs only…", "EVAL", text, "1", "o", "me", "x")
			c.want("-ERR this gateway runs only…", "SCRIPT", "LOAD", text)
		}
		c.want("me", "GET", "o")
		c.want("-ERR the script needs…", "EVAL", release, "1", "o")
		c.want("-ERR the script needs…", "EVAL", release, "0", "o", "me")
		c.want("-ERR Number of keys…", "EVAL", release, "3", "o", "me")
		c.want("-ERR Number of keys…", "EVAL", release, "-1", "o", "me")
		c.want("-ERR value is not…", "EVAL", renew, "1", "o", "me", "soon")
		c.want("-ERR invalid expire time", "EVAL", renew, "1", "o", "me", "0")
	})
}

// lossyKV applies writes, or drops them, and returns an error for each.
type lossyKV struct {
	clientv3.KV

	err    error
	drop   bool
	writes atomic.Int64
}

func (kv *lossyKV) Txn(ctx context.Context) clientv3.Txn {
	return &lossyTxn{Txn: kv.KV.Txn(ctx), kv: kv}
}

type lossyTxn struct {
	clientv3.Txn

	kv     *lossyKV
	writes bool
}

func (x *lossyTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	x.Txn = x.Txn.If(cs...)
	return x
}

func (x *lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		x.writes = x.writes || !op.IsGet()
	}
	x.Txn = x.Txn.Then(ops...)
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

// slowLease revokes once it is allowed to.
type slowLease struct {
	clientv3.Lease

	asked, revoked atomic.Int64
	allowed        chan struct{}
}

func (l *slowLease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	l.asked.Add(1)
	select {
	case <-l.allowed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer l.revoked.Add(1)
	return l.Lease.Revoke(ctx, id)
}

// TestRevocations checks that a command waits while too many revocations are under way, and that none is forgotten.
func TestRevocations(t *testing.T) {
	etcd := startCluster(t)
	lease := &slowLease{Lease: etcd.Lease, allowed: make(chan struct{})}
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
