package kvnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

// A served read does not pay for the handling of refused ones.
func TestReadUnderTheLeaseAllocatesNothing(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		synctest.Wait() // all other goroutines wait, and time does not pass while this one runs
		for _, mode := range []ReadMode{ReadLease, ReadSerializable} {
			if n := testing.AllocsPerRun(1000, func() {
				if _, err := leader.Read(t.Context(), mode); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("Read(%v) allocates %v times, want 0", mode, n)
			}
		}
	})
}

// TryRead is true only under a valid lease: not on a follower, not after the lease has expired, and not in
// another read mode.
func TestTryReadNeedsALease(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		synctest.Wait()
		for _, n := range append(c.followers(leader), leader) {
			if got := n.TryRead(); got != (n == leader) {
				t.Errorf("TryRead() = %v on %s; the leader is %s", got, n.Name(), leader.Name())
			}
		}
		c.isolate(leader)
		time.Sleep(5 * time.Second)
		if leader.TryRead() {
			t.Error("TryRead() = true on a leader that is cut off for 5 s")
		}
	})
	inCluster(t, 1, func(cfg *Config) { cfg.ReadMode = ReadIndex }, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		synctest.Wait()
		if n.TryRead() {
			t.Error("TryRead() = true with Config.ReadMode = ReadIndex")
		}
	})
}

// A read without a deadline gets one before it begins, unless the lease is valid and the store has all
// entries: a deadline costs an allocation.
func TestReadThatMayWaitHasADeadline(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		for _, n := range append(c.followers(leader), leader) {
			bounded := false
			_, err := n.reads.retry(context.Background(), func(ctx context.Context) (leaderlease.ReadResult, error) {
				_, bounded = ctx.Deadline()
				return leaderlease.ReadResult{}, nil
			})
			if want := n != leader; err != nil || bounded != want {
				t.Errorf("%s reads with a deadline: %v, %v, want %v", n.Name(), bounded, err, want)
			}
		}
		f := c.followers(leader)[0]
		_, err := f.reads.retry(context.Background(), func(ctx context.Context) (leaderlease.ReadResult, error) {
			select {
			case <-ctx.Done():
				return leaderlease.ReadResult{}, ctx.Err()
			case <-time.After(time.Hour):
				return leaderlease.ReadResult{}, errors.New("the read has no deadline")
			}
		})
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("retry() of a read that waits for ever = %v, want %v", err, ErrTimeout)
		}
	})
}

// Failed reads are counted, except those that their clients cancelled or that go through the log next.
func TestFailedReadsAreCounted(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		before := n.reads.failed.Load()
		failure := errors.New("test")
		for _, step := range []struct {
			err  error
			want uint64
		}{{nil, 0}, {context.Canceled, 0}, {leaderlease.ErrLeaderTooOld, 0}, {failure, 1}, {nil, 1}, {context.DeadlineExceeded, 2}} {
			_, err := n.reads.retry(t.Context(), func(context.Context) (leaderlease.ReadResult, error) { return leaderlease.ReadResult{}, step.err })
			if got := n.reads.failed.Load() - before; !errors.Is(err, step.err) || got != step.want {
				t.Errorf("retry() = %v, and %d reads have failed, want %v and %d", err, got, step.err, step.want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = n.reads.retry(ctx, func(context.Context) (leaderlease.ReadResult, error) { return leaderlease.ReadResult{}, failure })
		if got := n.reads.failed.Load() - before; got != 2 {
			t.Errorf("%d reads have failed, want 2: the client has cancelled the last one", got)
		}
	})
}

// wantEnd waits until n has ended, for at most a minute.
func wantEnd(t *testing.T, n *Node) {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(time.Minute):
		t.Fatalf("%s still runs a minute after it had to end", n.Name())
	}
}

// A read on a follower takes no turn of either raft loop: here both are blocked.
func TestAForwardedReadTakesNoTurnOfALoop(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(2 * time.Second) // all have applied it, and their restart holds are over
		f := c.followers(leader)[0]
		goOn := make(chan struct{})
		for _, n := range []*Node{leader, f} {
			still := make(chan struct{})
			n.calls.Push(func(*raftLoop) {
				close(still)
				<-goOn
			})
			<-still
		}
		begun := time.Now()
		r, err := f.Read(t.Context(), ReadLease)
		took := time.Since(begun)
		close(goOn)
		if err != nil || r.Path != "forwarded" || took > 20*time.Millisecond {
			t.Errorf("Read() on a follower = %+v, %v after %v while both loops are blocked, want it forwarded within 20ms", r, err, took)
		}
	})
}

// onLine calls f for each line that is logged.
type onLine func(name string)

func (f onLine) Enabled(context.Context, slog.Level) bool { return true }

func (f onLine) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}
func (f onLine) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f onLine) WithGroup(string) slog.Handler      { return f }

// A read comes when the lease knows the next leader, and the node does not. It asks the next leader: the
// former one would drop the request, and the lease asks again only after half an election timeout.
func TestForwardedReadAsksTheLeaderOfTheLease(t *testing.T) {
	var moved atomic.Pointer[func()]
	logger := func(cfg *Config) {
		cfg.Logger = slog.New(onLine(func(line string) {
			if line != "leader" {
				return
			}
			if f := moved.Swap(nil); f != nil {
				(*f)()
			}
		}))
	}
	inCluster(t, 3, logger, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(2 * time.Second) // all have applied it, and their restart holds are over
		next, f := c.followers(leader)[0], c.followers(leader)[1]
		goOn, told := make(chan struct{}), make(chan struct{})
		f.calls.Push(func(*raftLoop) { <-goOn })
		if err := leader.MoveLeader(t.Context(), next.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // raft's Ready about it waits for f's loop
		moved.Store(new(func() {
			close(told)
			time.Sleep(10 * time.Millisecond)
		}))
		close(goOn)
		<-told
		was, begun := f.Leader(), time.Now()
		r, err := f.Read(t.Context(), ReadLease)
		if took := time.Since(begun); err != nil || r.Path != "forwarded" || took > 100*time.Millisecond || was != leader.ID() {
			t.Errorf("Read() on a follower of %x = %+v, %v after %v, want it forwarded by %x", was, r, err, took, next.ID())
		}
	})
}

// leaderless cuts all members off from each other, and returns the former leader once it knows no leader.
func (c *cluster) leaderless() *Node {
	n := c.leader()
	for _, n := range c.nodes {
		c.isolate(n)
	}
	for n.Leader() != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return n
}

// ledRequests returns, by name, requests to n that need a leader.
func ledRequests(n *Node) map[string]func(context.Context) error {
	read := func(mode ReadMode) func(context.Context) error {
		return func(ctx context.Context) error { _, err := n.Read(ctx, mode); return err }
	}
	return map[string]func(context.Context) error{
		"a write":                func(ctx context.Context) error { return put(ctx, n, "k", "v") },
		"a read":                 read(ReadLease),
		"a read by a round":      read(ReadIndex),
		"a read through the log": read(ReadLog),
	}
}

// A request with FailWithoutLeader fails after an election timeout without a leader. Others wait for
// RequestTimeout.
func TestFailWithoutLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leaderless()
		timeout := n.cfg.ElectionTimeout
		impatient := context.WithValue(t.Context(), FailWithoutLeader{}, true)
		for name, do := range ledRequests(n) {
			for _, ctx := range []context.Context{impatient, t.Context()} {
				begun, want := time.Now(), timeout
				if ctx != impatient {
					want = n.cfg.RequestTimeout
				}
				err := do(ctx)
				told := errors.Is(err, ErrNoLeader) || ctx != impatient && errors.Is(err, ErrTimeout) // at a tick raft is offered the proposal once more
				if took := time.Since(begun); !told || took < want || took > want+timeout/4 {
					t.Errorf("%s without a leader = %v after %v, want ErrNoLeader after about %v", name, err, took, want)
				}
			}
		}
	})
}

// A fail-over takes less than an election timeout, so no request with FailWithoutLeader fails.
func TestNoRequestFailsInAFailOver(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		n := c.followers(old)[0]
		c.crash(old)
		impatient := context.WithValue(t.Context(), FailWithoutLeader{}, true)
		all := ledRequests(n)
		served := make(chan error, len(all))
		for name, do := range all {
			go func() {
				err := do(impatient)
				if err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
				served <- err
			}()
		}
		for range all {
			if err := <-served; err != nil {
				t.Errorf("in a fail-over: %v", err)
			}
		}
		if v, _ := c.get(n, ReadLease, "k"); v != "v" {
			t.Errorf("k = %q, want v", v)
		}
	})
}
