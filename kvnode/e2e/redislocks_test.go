package e2e

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/leaderlease/fence"
)

// startRedis starts gateways of the Redis protocol for a cluster, and returns their addresses.
func startRedis(t *testing.T, c *testcluster.Cluster, n int) (addrs []string) {
	t.Helper()
	for range n {
		cmd := exec.CommandContext(t.Context(), binaryPath(t, kvnode), "redis", "--listen", "127.0.0.1:0",
			"--timeout=2s", "--endpoints", endpointsOf(c.Members()...))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Wait() }) // the end of t.Context kills it
		line, err := bufio.NewReader(out).ReadString('\n')
		addr, is := strings.CutPrefix(strings.TrimSpace(line), "serving the Redis protocol on ")
		if err != nil || !is {
			t.Fatalf("kvnode redis printed %q, %v", line, err)
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

// redisClient returns a client of go-redis that makes each request once.
func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: 5 * time.Second})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// mutex is a lock of redsync.
func mutex(client *redis.Client, key string, expiry time.Duration, tries int) *redsync.Mutex {
	return redsync.New(goredis.NewPool(client)).NewMutex(key, redsync.WithExpiry(expiry), redsync.WithTries(tries), redsync.WithRetryDelay(10*time.Millisecond))
}

// fencing returns the fencing token of a lock while its holder has it.
func fencing(ctx context.Context, client *redis.Client, m *redsync.Mutex) (fence.Token, error) {
	index, err := client.Do(ctx, "KV.REV", m.Name(), m.Value()).Uint64()
	if errors.Is(err, redis.Nil) {
		return fence.Token{}, fmt.Errorf("the lock is lost: %w", err)
	}
	return fence.Token{Index: index}, err
}

// gone waits until a key has ended.
func gone(t *testing.T, client *redis.Client, key string) {
	t.Helper()
	for ctx := deadline(t); !errors.Is(client.Get(ctx, key).Err(), redis.Nil); {
		must(t, ctx.Err())
	}
}

// TestRedsync takes locks with redsync and go-redis as their users do.
func TestRedsync(t *testing.T) {
	gateways := startRedis(t, startCluster(t, onlyKvnode(t), electsSoon), 2)
	a, b := redisClient(t, gateways[0]), redisClient(t, gateways[1])
	t.Run("the holder renews, until the lock has expired", func(t *testing.T) { renewsUntilExpired(t, a, b) })
	t.Run("release deletes the holder's own lock only", func(t *testing.T) { releasesItsOwn(t, a, b) })
	t.Run("a holder that was paused is refused", func(t *testing.T) { isRefusedAfterPause(t, gateways[0], b) })
}

// TestRedsyncAtMembers does so at the members' own ports for Redis.
func TestRedsyncAtMembers(t *testing.T) {
	var addrs []string
	c := newCluster(t, testcluster.Config{Program: onlyKvnode(t), Flags: []string{electsSoon}, Own: func(*testcluster.Member) []string {
		addr, err := testcluster.FreeAddr(t.Context())
		must(t, err)
		addrs = append(addrs, addr)
		return []string{"--listen-redis-url=http://" + addr}
	}})
	must(t, c.Serve(deadline(t)))
	a, b := redisClient(t, addrs[0]), redisClient(t, addrs[1])
	renewsUntilExpired(t, a, b)
	releasesItsOwn(t, a, b)
}

func renewsUntilExpired(t *testing.T, a, b *redis.Client) {
	ctx := deadline(t)
	held, other := mutex(a, "renewed", 30*time.Second, 1), mutex(b, "renewed", 30*time.Second, 1)
	must(t, held.LockContext(ctx))
	if err := other.LockContext(ctx); err == nil {
		t.Error("two have the lock")
	}
	if renewed, err := held.ExtendContext(ctx); !renewed || err != nil {
		t.Errorf("Extend() of the holder = %v, %v", renewed, err)
	}
	if left := b.PTTL(ctx, "renewed").Val(); left < 25*time.Second {
		t.Errorf("after Extend() the lock has %v left", left)
	}
	must(t, a.PExpire(ctx, "renewed", time.Millisecond).Err())
	gone(t, b, "renewed")
	if renewed, err := held.ExtendContext(ctx); renewed || err == nil {
		t.Errorf("Extend() after the expiry = %v, %v", renewed, err)
	}
}

func releasesItsOwn(t *testing.T, a, b *redis.Client) {
	ctx := deadline(t)
	former, holder := mutex(a, "released", time.Second, 1), mutex(b, "released", 30*time.Second, 1)
	must(t, former.LockContext(ctx))
	gone(t, b, "released")
	must(t, holder.LockContext(ctx))
	if released, err := former.UnlockContext(ctx); released || err == nil {
		t.Errorf("Unlock() of the former holder = %v, %v", released, err)
	}
	if got := a.Get(ctx, "released").Val(); got != holder.Value() {
		t.Errorf("the lock has the value %q, want the holder's, %q", got, holder.Value())
	}
	if released, err := holder.UnlockContext(ctx); !released || err != nil {
		t.Errorf("Unlock() of the holder = %v, %v", released, err)
	}
}

// redisHolderEnv makes the test binary a holder of a lock: its value is a gateway's address.
const redisHolderEnv = "E2E_REDIS_HOLDER"

// holdRedis takes a lock and prints its token. For each line on its standard input it prints its token as that of a
// write, and whether it has renewed the lock.
func holdRedis(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: addr})
	m := mutex(client, "stopped", time.Second, 1)
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	token, err := fencing(ctx, client, m)
	if err != nil {
		return err
	}
	fmt.Println(token.Index)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(token.Index)
		renewed, _ := m.ExtendContext(ctx)
		fmt.Println(renewed)
	}
	return nil
}

func isRefusedAfterPause(t *testing.T, gateway string, b *redis.Client) {
	ctx := deadline(t)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), redisHolderEnv+"="+gateway), os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	out := bufio.NewScanner(stdout)
	says := func() string { out.Scan(); return out.Text() }
	var resource fence.Gate
	write := func(token fence.Token) error { return resource.Do(token, func() error { return nil }) }

	must(t, write(fence.Token{Index: uint64(number(t, says()))}))
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	gone(t, b, "stopped")
	next := mutex(b, "stopped", 30*time.Second, 1)
	must(t, next.LockContext(ctx))
	token, err := fencing(ctx, b, next)
	must(t, err)
	must(t, write(token))
	_, err = fmt.Fprintln(stdin, "write")
	must(t, err)
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	if err := write(fence.Token{Index: uint64(number(t, says()))}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a write of the paused holder: %v, want that it is stale", err)
	}
	if renewed := says(); renewed != "false" {
		t.Errorf("the paused holder has renewed: %s", renewed)
	}
	if got := b.Get(ctx, "stopped").Val(); got != next.Value() {
		t.Errorf("the lock has the value %q, want the next holder's, %q", got, next.Value())
	}
}

// TestRedsyncFaults lets holders compete for one lock while the leader is killed, paused, and cut off. A holder writes
// to a fenced resource.
func TestRedsyncFaults(t *testing.T) {
	links := &links{}
	c := newCluster(t, testcluster.Config{Program: onlyKvnode(t), Own: links.between(t), Flags: []string{electsSoon}})
	must(t, c.Serve(deadline(t)))
	gateways := startRedis(t, c, 2)
	l := &lockLoad{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for me := range 4 {
		client := redisClient(t, gateways[me%2])
		all.Go(func() { l.compete(ctx, client, me) })
	}
	for _, fault := range []struct {
		name       string
		begin, end func(leader *testcluster.Member) error
	}{
		{"killed", (*testcluster.Member).Kill, (*testcluster.Member).Start},
		{"paused", (*testcluster.Member).Pause, (*testcluster.Member).Resume},
		{
			"cut off", func(*testcluster.Member) error { links.cut(true); return nil },
			func(*testcluster.Member) error { links.cut(false); return nil },
		},
	} {
		l.wait(10)
		leader, err := c.Leader(deadline(t))
		must(t, err)
		before := l.rounds.Load()
		must(t, fault.begin(leader))
		if fault.name != "cut off" { // all members are cut off from each other
			l.wait(10)
		}
		must(t, fault.end(leader))
		l.wait(10)
		t.Logf("the leader %s: %d rounds", fault.name, l.rounds.Load()-before)
	}
	t.Logf("%d rounds, %d attempts failed, %d releases failed", l.rounds.Load(), l.failed.Load(), l.unreleased.Load())
}

// lockLoad are clients that compete for a lock.
type lockLoad struct {
	t        *testing.T
	resource fence.Gate
	// holder is the client that has the lock.
	holder                     atomic.Pointer[lockHolder]
	rounds, failed, unreleased atomic.Int64
}

// lockHolder has the lock until a time at least.
type lockHolder struct {
	client int
	until  time.Time
}

// wait waits for rounds of all clients together.
func (l *lockLoad) wait(rounds int64) {
	l.t.Helper()
	ctx := deadline(l.t)
	for want := l.rounds.Load() + rounds; l.rounds.Load() < want; time.Sleep(time.Millisecond) {
		must(l.t, ctx.Err())
	}
}

// compete takes the lock, writes, renews and releases, until ctx ends.
func (l *lockLoad) compete(ctx context.Context, client *redis.Client, me int) {
	m := mutex(client, "faults", 3*time.Second, 100)
	for ctx.Err() == nil {
		if m.LockContext(ctx) != nil { // another client has it, or the outcome is unknown
			l.failed.Add(1)
			continue
		}
		holder := &lockHolder{me, m.Until()}
		if other := l.holder.Swap(holder); other != nil && time.Now().Before(other.until) {
			l.t.Errorf("client %d has the lock, which client %d has until %v", me, other.client, other.until)
		}
		token, err := fencing(ctx, client, m)
		if err == nil {
			err = l.resource.Do(token, func() error { return nil })
		}
		if err == nil {
			_, err = m.ExtendContext(ctx)
		}
		if errors.Is(err, fence.ErrStale) && time.Now().Before(m.Until()) {
			l.t.Errorf("the holder's token %v is refused", token)
		}
		l.holder.CompareAndSwap(holder, nil)
		if released, err := m.UnlockContext(ctx); !released || err != nil {
			l.unreleased.Add(1) // the lock ends at its time, if the release had no effect
		}
		l.rounds.Add(1)
	}
}

var npmFlag = flag.Bool("npm", false, "take locks with redlock and ioredis, installed from npm")

// TestRedlock takes locks with redlock and ioredis for node while the leader is killed and paused.
func TestRedlock(t *testing.T) {
	if !*npmFlag {
		t.Skip("make redlock runs it")
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	c := startCluster(t, onlyKvnode(t), electsSoon)
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("testdata/redlock")))
	install := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--prefix", dir)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", install, err, out)
	}
	ctx := deadline(t)
	node := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, "locks.js")}, startRedis(t, c, 2)...)...)
	node.Stderr = os.Stderr
	stop, err := node.StdinPipe()
	must(t, err)
	stdout, err := node.StdoutPipe()
	must(t, err)
	must(t, node.Start())
	lines := bufio.NewScanner(stdout)
	var leader *testcluster.Member
	for i, step := range []func(*testcluster.Member) error{
		(*testcluster.Member).Kill, (*testcluster.Member).Start, (*testcluster.Member).Pause, (*testcluster.Member).Resume,
	} {
		if !lines.Scan() {
			break // the script has failed
		}
		if i%2 == 0 {
			leader, err = c.Leader(ctx)
			must(t, err)
		}
		must(t, step(leader))
	}
	lines.Scan()
	t.Log(lines.Text())
	must(t, stop.Close())
	_, _ = io.Copy(io.Discard, stdout) // the rest
	must(t, node.Wait())
}
