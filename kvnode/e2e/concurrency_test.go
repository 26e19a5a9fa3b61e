package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
)

// eachSize runs a test against clusters of one and of three members.
func eachSize(t *testing.T, test func(t *testing.T, c *testcluster.Cluster), flags ...string) {
	t.Helper()
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprintf("members=%d", size), func(t *testing.T) { test(t, startSize(t, p, size, flags...)) })
		}
	})
}

// memberClients returns two clients, of different members if there are.
func memberClients(t *testing.T, c *testcluster.Cluster) (a, b *clientv3.Client) {
	t.Helper()
	all := clients(t, c.Members())
	return all[0], all[len(all)-1]
}

func session(t *testing.T, c *clientv3.Client, ttl int) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Orphan)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Clients get the lock in the order in which they asked. The lock's create revision grows
// from holder to holder.
func TestMutexesAreServedInOrder(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		first, second := concurrency.NewMutex(session(t, a, 10), "l"), concurrency.NewMutex(session(t, b, 10), "l")
		must(t, first.Lock(ctx))
		if err := second.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
			t.Fatalf("TryLock() of a lock that is held = %v, want %v", err, concurrency.ErrLocked)
		}
		granted := make(chan error, 1)
		go func() { granted <- second.Lock(ctx) }()
		select {
		case err := <-granted:
			t.Fatalf("Lock() of a lock that is held = %v, want it to wait", err)
		case <-time.After(200 * time.Millisecond):
		}
		token := load.Token(first.IsOwner())
		must(t, first.Unlock(ctx))
		must(t, <-granted)
		if next := load.Token(second.IsOwner()); next <= token {
			t.Errorf("the second holder's token is %d, want more than the first one's %d", next, token)
		}
		must(t, second.Unlock(ctx))
		if err := first.Unlock(ctx); !errors.Is(err, concurrency.ErrLockReleased) {
			t.Errorf("Unlock() twice = %v, want %v", err, concurrency.ErrLockReleased)
		}
	})
}

// A lock goes to the next when its holder's lease is revoked, and a write that
// compares the old holder's token is refused.
func TestMutexOfClosedSessionGoesOn(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		s := session(t, a, 10)
		first, second := concurrency.NewMutex(s, "l"), concurrency.NewMutex(session(t, b, 10), "l")
		must(t, first.Lock(ctx))
		owner := first.IsOwner()
		must(t, s.Close())
		must(t, second.Lock(ctx))
		resp, err := a.Txn(ctx).If(owner).Then(clientv3.OpPut("guarded", "late")).Commit()
		if err != nil || resp.Succeeded {
			t.Errorf("write of a holder whose lease was revoked = %v, %v, want it refused", resp, err)
		}
		resp, err = b.Txn(ctx).If(second.IsOwner()).Then(clientv3.OpPut("guarded", "mine")).Commit()
		if err != nil || !resp.Succeeded {
			t.Errorf("write of the holder = %v, %v, want it done", resp, err)
		}
	})
}

// Candidates lead in the order in which they campaigned. Observers receive each leader, its
// proclaimed values, and its successor when it resigns.
func TestElectionIsObserved(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		one, two := concurrency.NewElection(session(t, a, 10), "e"), concurrency.NewElection(session(t, b, 10), "e")
		if _, err := one.Leader(ctx); !errors.Is(err, concurrency.ErrElectionNoLeader) {
			t.Errorf("Leader() before anyone campaigns = %v, want %v", err, concurrency.ErrElectionNoLeader)
		}
		heard := concurrency.NewElection(session(t, b, 10), "e").Observe(ctx)
		must(t, one.Campaign(ctx, "one"))
		hears(t, heard, "one")
		elected := make(chan error, 1)
		go func() { elected <- two.Campaign(ctx, "two") }()
		must(t, one.Proclaim(ctx, "one again"))
		hears(t, heard, "one again")
		must(t, one.Resign(ctx))
		must(t, <-elected)
		hears(t, heard, "two")
		if two.Rev() <= one.Rev() {
			t.Errorf("the second leader's revision is %d, want more than the first one's %d", two.Rev(), one.Rev())
		}
		if err := one.Proclaim(ctx, "late"); !errors.Is(err, concurrency.ErrElectionNotLeader) {
			t.Errorf("Proclaim() after Resign() = %v, want %v", err, concurrency.ErrElectionNotLeader)
		}
		resp, err := one.Leader(ctx)
		if err != nil || string(resp.Kvs[0].GetValue()) != "two" {
			t.Errorf("Leader() = %v, %v, want two", resp, err)
		}
	})
}

func hears(t *testing.T, heard <-chan *clientv3.GetResponse, want string) {
	t.Helper()
	select {
	case resp := <-heard:
		if got := string(resp.Kvs[0].GetValue()); got != want {
			t.Errorf("an observer hears of %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("an observer does not hear of %q", want)
	}
}

// Transfers between accounts under software transactional memory, at each level
// of isolation that detects conflicts, lose no money.
func TestSTMKeepsTheSum(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		const accounts, each = 3, 100
		for i := range accounts {
			_, err := a.Put(ctx, fmt.Sprint("account/", i), strconv.Itoa(each))
			must(t, err)
		}
		var wg sync.WaitGroup
		for i, level := range []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable, concurrency.RepeatableReads} {
			client := []*clientv3.Client{a, b}[i%2]
			wg.Go(func() {
				for n := range 20 {
					from, to := fmt.Sprint("account/", (i+n)%accounts), fmt.Sprint("account/", (i+n+1)%accounts)
					_, err := concurrency.NewSTM(client, transfer(from, to), concurrency.WithIsolation(level), concurrency.WithAbortContext(ctx))
					if err != nil {
						t.Errorf("transfer with isolation %v: %v", level, err)
					}
				}
			})
		}
		wg.Wait()
		resp, err := b.Get(ctx, "account/", clientv3.WithPrefix())
		must(t, err)
		sum, writes := int64(0), int64(0)
		for _, kv := range resp.Kvs {
			sum += number(t, string(kv.GetValue()))
			writes += kv.GetVersion() - 1
		}
		if sum != accounts*each || writes != 3*20*2 {
			t.Errorf("the sum is %d after %d writes, want %d after %d", sum, writes, accounts*each, 3*20*2)
		}
	})
}

// transfer moves one from one account to the other.
func transfer(from, to string) func(concurrency.STM) error {
	return func(s concurrency.STM) error {
		x, err := strconv.Atoi(s.Get(from))
		if err != nil {
			return err
		}
		y, err := strconv.Atoi(s.Get(to))
		if err != nil {
			return err
		}
		s.Put(from, strconv.Itoa(x-1))
		s.Put(to, strconv.Itoa(y+1))
		return nil
	}
}

// holderEnv makes the test binary a holder of a lock: its value are endpoints.
const holderEnv = "E2E_HOLDER"

// hold acquires a lock, prints its token, and for each line on its standard input
// writes to a key, if its token is still good, and prints whether it was.
func hold(endpoints string) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoints, ",")})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(4))
	if err != nil {
		return err
	}
	m := concurrency.NewMutex(s, "l")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	fmt.Println(load.Token(m.IsOwner()))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		resp, err := c.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpPut("guarded", in.Text())).Commit()
		if err != nil {
			return err
		}
		fmt.Println(resp.Succeeded)
	}
	return nil
}

// A holder that is stopped for longer than its lease loses the lock. When it
// wakes it does not know, and what it writes with its old token is refused.
func TestPausedHolderIsFenced(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		c := startCluster(t, p, electsSoon)
		ctx := deadline(t)
		self, err := os.Executable()
		must(t, err)
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), holderEnv+"="+endpointsOf(c.Members()...))
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		must(t, err)
		stdout, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
		out := bufio.NewScanner(stdout)
		says := func() string { out.Scan(); return out.Text() }
		tell := func(line string) {
			_, err := fmt.Fprintln(stdin, line)
			must(t, err)
		}

		token := number(t, says())
		tell("in time")
		if got := says(); got != "true" {
			t.Fatalf("the holder's write succeeded: %s, want true", got)
		}
		must(t, cmd.Process.Signal(syscall.SIGSTOP))
		client, _ := memberClients(t, c)
		m := concurrency.NewMutex(session(t, client, 10), "l")
		must(t, m.Lock(ctx))
		if next := load.Token(m.IsOwner()); next <= token {
			t.Errorf("the next holder's token is %d, want more than %d", next, token)
		}
		_, err = client.Put(ctx, "guarded", "of the next")
		must(t, err)
		tell("late")
		must(t, cmd.Process.Signal(syscall.SIGCONT))
		if got := says(); got != "false" {
			t.Errorf("the paused holder's write succeeded: %s, want false", got)
		}
		resp, err := client.Get(ctx, "guarded")
		if err != nil || string(resp.Kvs[0].GetValue()) != "of the next" {
			t.Errorf("Get(guarded) = %v, %v, want what the next holder wrote", resp, err)
		}
	})
}
