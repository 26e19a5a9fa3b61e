package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
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
	a.want("nil", "KV.REV", "t", "a")
	first := a.do("KV.LOCK", "t", "a", "PX", "30000")
	a.want(first, "KV.REV", "t", "a")
	a.want("nil", "KV.REV", "t", "b")
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
		EXEC => [1 -ERR nothing was locked: the same MULTI deletes the key before]
		MULTI => OK
		KV.LOCK t c PX 1000 => QUEUED
		KV.LOCK t d PX 1000 => QUEUED
		GET t => QUEUED`)
	fields := strings.Fields(strings.Trim(b.do("EXEC"), "[]"))
	if len(fields) != 3 || fields[1] != "nil" || fields[2] != "c" {
		t.Errorf("KV.LOCK in MULTI: %q", fields)
	}
	b.want(fields[0], "KV.REV", "t", "c")
	b.script(`
		KV.LOCK t c PX 0 => -ERR usage…
		KV.LOCK t c PX x => -ERR usage…
		KV.LOCK t c EX 10 => -ERR usage…
		KV.LOCK t c => -ERR wrong number…`)
}

// No two holders have the same token when a MULTI releases a lock and takes it.
func TestTokensOfAMULTI(t *testing.T) {
	c := dial(t, startGateway(t, startCluster(t)))
	c.script(`
		SET t c => OK
		MULTI => OK
		DEL t => QUEUED
		SET t d NX => QUEUED
		SETNX t d => QUEUED
		EXEC => [1 -ERR nothing was locked: the same MULTI deletes the key before -ERR nothing was locked: the same MULTI deletes the key before]
		SET t c => OK
		MULTI => OK
		DEL t => QUEUED`)
	c.want("QUEUED", "EVAL", redlockLock, "1", "t", "d", "1000")
	c.script(`
		EXEC => -ERR nothing was locked: the same MULTI deletes the key before
		GET t => c
		MULTI => OK
		KV.LOCK u c PX 1000 => QUEUED
		DEL u => QUEUED
		SET v w => QUEUED
		EXEC => -ERR nothing was written: the MULTI deletes a key that it has locked
		MULTI => OK
		SET u c NX => QUEUED
		DEL u => QUEUED
		SET u d NX => QUEUED
		EXEC => [OK 1 -ERR nothing was locked: the same MULTI deletes the key before]
		EXISTS u v => 0`)
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
		c.want("2", "EVAL", redlockLock, "2", "d", "d", "me", "30000")
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
			"-- a comment\rif ARGV[2] then return 0 end\n" + release,
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
