package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

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
