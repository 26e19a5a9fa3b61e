package server

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A rolling restart that goes by /readyz alone finds a successor for the leader, and
// clients that try again go on.
func TestARollingRestartThatTrustsReadyz(t *testing.T) {
	skipShort(t)
	all := trio(t, func(c *Config) {
		c.Node.TickInterval, c.Node.ElectionTimeout = 50*time.Millisecond, 500*time.Millisecond
	})
	load := startLoad(t, client(t, all...))
	last, others := leader(t, all)
	others[0] = restart(t, others[0])
	others[1] = restart(t, others[1])
	stop(t, last)
	leader(t, others) // the leader waits until it has a successor
	restart(t, last)
	load.end(t)
}

// restart stops a member as an operator does, starts it at the same addresses, and
// waits until /readyz is good.
func restart(t *testing.T, s *Server) *Server {
	t.Helper()
	stop(t, s)
	c := s.cfg
	c.Node.Listener, c.ClientListener, c.HTTPListener = nil, nil, nil
	next, err := Start(c)
	if err != nil {
		t.Fatalf("Start(%s) again: %v", c.Node.Name, err)
	}
	t.Cleanup(func() { stop(t, next) })
	for code := 0; code != http.StatusOK; time.Sleep(5 * time.Millisecond) {
		code, _ = page(t, next, "/readyz")
	}
	if hold := next.Node().Status().Lease.Promise.Hold; hold > 0 {
		t.Errorf("/readyz of %s is good %v before it may vote", c.Node.Name, hold)
	}
	return next
}

// load writes and reads until it is ended, and tries again what fails.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   [2]int           // writes and reads
	gaps   [2]time.Duration // longest between two of them
}

func startLoad(t *testing.T, c *clientv3.Client) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	for i, op := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := c.Put(ctx, "k", "v"); return err },
		func(ctx context.Context) error { _, err := c.Get(ctx, "k"); return err },
	} {
		l.wg.Go(func() {
			last, limit := time.Now(), 300*time.Millisecond
			for ctx.Err() == nil {
				one, end := context.WithTimeout(ctx, limit)
				err := op(one)
				end()
				if now := time.Now(); err == nil {
					l.done[i]++
					l.gaps[i], last = max(l.gaps[i], now.Sub(last)), now
				}
				if l.done[i] == 0 { // a busy machine or disk may need longer
					limit = min(2*limit, patience)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return l
}

func (l *load) end(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	t.Logf("%d writes, longest pause %v; %d reads, longest pause %v", l.done[0], l.gaps[0], l.done[1], l.gaps[1])
	if l.done[0] == 0 || l.done[1] == 0 {
		t.Errorf("%d writes and %d reads during a rolling restart, want many", l.done[0], l.done[1])
	}
}
