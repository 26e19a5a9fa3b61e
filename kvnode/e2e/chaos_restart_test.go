package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

// staleAfterStart is how many stale reads of a member are looked at after a start. At
// first they come faster than a log is applied.
const staleAfterStart = 200

// restartAll cuts the power. Stale reads begin before the members are back, at first
// a quorum of them, and none shows less than what a client knew before.
func (c *chaos) restartAll() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*recovery)
	defer cancel()
	return c.anyMember().Use(func(cl *clientv3.Client) error { return c.cutPower(ctx, cl) })
}

// restartAllQuiet kills all members when the last write has just been acknowledged, so that no later
// message has told a follower that the write is committed.
func (c *chaos) restartAllQuiet() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*recovery)
	defer cancel()
	defer c.l.Hold()()
	return c.anyMember().Use(func(cl *clientv3.Client) error { return c.cutPower(ctx, cl) })
}

// cutPower kills all members as soon as a write is acknowledged, and starts them.
func (c *chaos) cutPower(ctx context.Context, cl *clientv3.Client) error {
	value := fmt.Sprintf("before the cut at %v", time.Since(c.start))
	var revision int64
	err := load.Retry(ctx, func(ctx context.Context) error {
		done, err := cl.Put(ctx, "cut", value)
		if err == nil {
			revision = done.Header.GetRevision()
		}
		return err
	})
	if err != nil {
		return err
	}
	newest := max(revision, c.l.Newest())
	if err := c.c.Kill(); err != nil {
		return err
	}
	back := slices.Clone(c.c.Members())
	c.random.Shuffle(len(back), func(i, j int) { back[i], back[j] = back[j], back[i] })
	quorum := len(back)/2 + 1
	for _, some := range [][]*testcluster.Member{back[:quorum], back[quorum:]} {
		if err := c.startAndRead(ctx, some, value, newest); err != nil {
			return err
		}
	}
	return nil
}

// startAndRead starts members and checks what they serve from the first moment on.
func (c *chaos) startAndRead(ctx context.Context, some []*testcluster.Member, value string, newest int64) error {
	for _, m := range some {
		if err := m.Start(); err != nil {
			return err
		}
	}
	return together(ctx, len(some), func(ctx context.Context, i int) error {
		m := some[i]
		err := staleReads(ctx, m, "cut", staleAfterStart, func(got *clientv3.GetResponse) error {
			if rev := got.Header.GetRevision(); rev < newest || valueOf(got) != value {
				return fmt.Errorf("after a restart of all, %s shows revision %d and %q, older than what was acknowledged: %d and %q",
					m.Name, rev, valueOf(got), newest, value)
			}
			return nil
		})
		return errors.Join(err, m.WaitReady(ctx))
	})
}

// together does something n times at once. The first error ends the others.
func together(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// How long a rolling restart may leave clients without the answer to a write, or to a
// read, on a quiet machine. Handing over takes a tenth of it, an election after mere silence
// twice as long. One after a promise takes half of it: notTransferred tells of that.
const rollingPause = 500 * time.Millisecond

// notTransferred is logged by a leader that stops although no other member leads.
const notTransferred = "leadership was not transferred"

var errNotTransferred = errors.New("a leader that ended has not transferred leadership")

// rollingRestart restarts the members. A leader that stops looks for a successor for two seconds,
// which may be too little for a busy machine, but hardly each time: without -slow one of three is
// enough.
func (c *chaos) rollingRestart() error {
	err := c.rollOnce()
	for range 2 {
		if *slowFlag || !errors.Is(err, errNotTransferred) {
			break
		}
		c.t.Log(err)
		err = c.rollOnce()
	}
	return err
}

// rollOnce restarts one member after the other as an operator does, guided by /readyz
// alone. A leader that stops finds a transferee.
func (c *chaos) rollOnce() error {
	order := slices.Clone(c.c.Members())
	c.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	pauses, begun := c.l.Pauses(), time.Now()
	var errs []error
	for _, m := range order {
		errs = append(errs, c.replaceProcess(m))
	}
	reads, writes, failed := pauses.End()
	c.t.Logf("a rolling restart in %v: at most %v without a read, %v without a write, %d requests failed",
		time.Since(begun).Round(time.Millisecond), reads.Round(time.Millisecond), writes.Round(time.Millisecond), failed)
	if longest := max(reads, writes); *slowFlag && c.p.Name == kvnode && longest > rollingPause {
		errs = append(errs, fmt.Errorf("a rolling restart left clients without an answer for %v, want at most %v", longest, rollingPause))
	}
	return errors.Join(errs...)
}

// replaceProcess ends a member in good order, starts it, and waits for /readyz.
func (c *chaos) replaceProcess(m *testcluster.Member) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), recovery)
	defer cancel()
	before := len(m.Log())
	code, err := m.Terminate(ctx)
	if err != nil {
		return err
	}
	if code > 0 {
		return fmt.Errorf("%s ended with code %d on SIGTERM, want an end in good order:\n%s", m.Name, code, m.LogTail())
	}
	if strings.Contains(m.Log()[before:], notTransferred) {
		err = fmt.Errorf("%w: %s\n%s", errNotTransferred, m.Name, m.LogTail())
	}
	if err := m.Start(); err != nil {
		return err
	}
	if err := untilReadyz(ctx, m, http.StatusOK); err != nil {
		return err
	}
	if hold := statusOf(ctx, m).Promise.RestartHoldMS; hold > 0 { // by its own word
		return fmt.Errorf("/readyz of %s is good %v ms before it may vote", m.Name, hold)
	}
	return err
}
