package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
	"github.com/leaderlease/go/kvnode/server/status"
)

// snapshotText matches the log line of kvnode or etcd that a snapshot of another member
// was installed. An ordinary start logs neither.
var snapshotText = regexp.MustCompile(`restored a snapshot|applied snapshot`)

// prober returns the test's own client of member m. Every other client sends by streams, if the run
// uses streams, so fail-overs cover both kinds.
func (c *chaos) prober(m *testcluster.Member) *linz.EtcdClient {
	if c.probers == nil {
		c.probers = make([]*linz.EtcdClient, len(c.c.Members()))
	}
	i := slices.Index(c.c.Members(), m)
	if c.probers[i] == nil {
		c.probers[i] = c.l.Client(i, i%2 == 1)
	}
	return c.probers[i]
}

// pauseLeader stops the leader until another one has been elected and has
// written. When it wakes, it finds reads in its socket first, before it notices that time has passed.
func (c *chaos) pauseLeader() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), recovery)
	defer cancel()
	old, err := c.c.Leader(ctx)
	if err != nil {
		return err
	}
	if err := old.Pause(); err != nil {
		return err
	}
	// A member that is still stopped cannot be killed by the cleanup.
	defer func() { err = errors.Join(err, old.Resume()) }()
	if err := c.waitOtherLeader(ctx, old); err != nil {
		return err
	}
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		return fmt.Errorf("without its leader the cluster does not serve: %w", err)
	}
	return c.wake(ctx, old)
}

// waitOtherLeader waits until a member other than old leads.
func (c *chaos) waitOtherLeader(ctx context.Context, old *testcluster.Member) error {
	for {
		for _, m := range c.others(old) {
			if s, err := m.Status(ctx); err == nil && s.Leader == s.Header.GetMemberId() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no member leads instead of %s: %w", old.Name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wake wakes a member while reads wait at it one after the other.
func (c *chaos) wake(ctx context.Context, old *testcluster.Member) error {
	var wg sync.WaitGroup
	asked := make(chan struct{})
	p := c.prober(old)
	wg.Go(func() {
		for i := range 20 {
			if i == 0 {
				close(asked)
			}
			// An error is a correct answer.
			_, _ = p.Get(ctx, c.l.Keys.Key(i%c.l.Keys.Len()))
		}
	})
	<-asked
	time.Sleep(20 * time.Millisecond) // until the first is in the socket
	c.woken++
	err := old.Resume()
	wg.Wait()
	return err
}

// catchUp keeps a member down until the log has been compacted beyond its last
// entry, and restarts it.
func (c *chaos) catchUp() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*recovery)
	defer cancel()
	m := c.anyMember()
	if err := m.Kill(); err != nil {
		return err
	}
	has := uint64(0)
	for _, o := range c.others(m) {
		has = max(has, statusOf(ctx, o).LastIndex)
	}
	// Failed writes do not count. One snapshot more is needed, since the last one keeps
	// some entries behind it.
	for n := c.l.Writes() + 3*(snapshotCount+catchUpEntries); c.l.Writes() < n; {
		if err := c.l.WaitProgress(ctx, progress); err != nil {
			return err
		}
	}
	if err := c.untilForgotten(ctx, m, has); err != nil {
		return err
	}
	before := len(m.Log())
	if err := c.restart(m); err != nil {
		return err
	}
	return c.waitCaughtUp(ctx, m, before)
}

// untilForgotten waits until the logs of all members but m begin beyond index. A busy disk delays
// that. It cannot be observed in etcd.
func (c *chaos) untilForgotten(ctx context.Context, m *testcluster.Member, index uint64) error {
	for _, o := range c.others(m) {
		for c.p.Name == kvnode && statusOf(ctx, o).Checkpoint.Index <= index+catchUpEntries {
			if err := c.l.WaitProgress(ctx, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

// statusOf reads /status, a page that only kvnode has.
func statusOf(ctx context.Context, m *testcluster.Member) (s status.Report) {
	_, body := page(ctx, m, "/status")
	_ = json.Unmarshal(body, &s) // the member does not answer, or is etcd
	return s
}

// waitCaughtUp waits until m has applied the entries that the others had when it came back.
func (c *chaos) waitCaughtUp(ctx context.Context, m *testcluster.Member, before int) error {
	final, err := load.Final(ctx, c.others(m)[0])
	if err != nil {
		return err
	}
	if _, err := load.Hashes(ctx, []*testcluster.Member{m}, final.Revision); err != nil {
		return fmt.Errorf("%s does not catch up: %w", m.Name, err)
	}
	if !snapshotText.MatchString(m.Log()[before:]) && !c.compactionWaits() {
		return fmt.Errorf("%s caught up, but its log does not tell of a snapshot", m.Name)
	}
	return nil
}

// compactionWaits reports whether a member of etcd has installed a snapshot. For 30 s after that its
// leader compacts nothing, so a member that comes back meanwhile finds the log whole.
func (c *chaos) compactionWaits() bool {
	return c.p.Name == etcd && slices.ContainsFunc(c.c.Members(), func(m *testcluster.Member) bool {
		return snapshotText.MatchString(m.Log())
	})
}

// staleAfterStart is the number of serializable reads that are checked after a start. At first
// they are faster than the replay of a log.
const staleAfterStart = 200

// restartAll cuts the power. Serializable reads begin before a quorum is back, and none
// may be older than a value that a client had seen before.
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

// startAndRead starts members and checks their answers from the first moment on.
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

// together runs do n times concurrently. The first error cancels the others.
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

// rollingPause is the longest time without an answered write or read in a rolling restart. It leaves
// room for a busy machine: a transfer takes 50 ms on a quiet one, an election after silence a second.
// Each restart prints its pause, and notTransferred shows a transfer that failed.
const rollingPause = 2 * time.Second

// notTransferred is logged by a leader that stops although no other member leads.
const notTransferred = "leadership was not transferred"

var errNotTransferred = errors.New("a leader that ended has not transferred leadership")

// rollingRestart restarts the members. A leader that stops looks for a transferee for two seconds.
// That may be too short on a busy machine, so without -slow one success of three is
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

// replaceProcess stops a member in order, starts it, and waits for /readyz.
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

// setMemberBack restores an older copy of a member's directory. The member must exit with the
// error that names the cause, the others go on, and the member is replaced as the error advises.
func (c *chaos) setMemberBack() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*recovery)
	defer cancel()
	m := c.anyMember()
	before := len(m.Log())
	err := setBack(ctx, m, func() error {
		return m.Use(func(cl *clientv3.Client) error { return putAndGet(ctx, cl, "before it is set back") })
	})
	if err != nil {
		return fmt.Errorf("%s was set back: %w", m.Name, err)
	}
	for _, word := range setBackWords(m) {
		if said := m.Log()[before:]; !strings.Contains(said, word) {
			return fmt.Errorf("%s was set back and has ended, but does not say %q:\n%s", m.Name, word, m.LogTail())
		}
	}
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		return fmt.Errorf("beside a member that was set back the others do not serve: %w", err)
	}
	for _, o := range c.others(m) {
		if !o.Running() {
			return fmt.Errorf("%s was set back, and %s has ended as well:\n%s", m.Name, o.Name, o.LogTail())
		}
	}
	return c.replace(ctx, m)
}

// replace replaces a stopped member by a new one with an empty directory.
func (c *chaos) replace(ctx context.Context, m *testcluster.Member) error {
	if err := c.untilForgotten(ctx, m, 0); err != nil { // it may be the first step
		return err
	}
	before := len(m.Log())
	if err := replaceMember(ctx, c.c, m, c.others(m)[0]); err != nil {
		return err
	}
	return c.waitCaughtUp(ctx, m, before)
}

// replaceMember replaces a member with an unusable directory, as an operator does, by requests to
// another member.
func replaceMember(ctx context.Context, c *testcluster.Cluster, m, by *testcluster.Member) error {
	err := by.Use(func(cl *clientv3.Client) error {
		if err := load.Retry(ctx, func(ctx context.Context) error { return removeNamed(ctx, cl, m.Name) }); err != nil {
			return fmt.Errorf("remove %s: %w", m.Name, err)
		}
		if err := load.Retry(ctx, func(ctx context.Context) error { return addNamed(ctx, cl, m) }); err != nil {
			return fmt.Errorf("add %s: %w", m.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := c.Join(m.Name); err != nil {
		return err
	}
	if err := errors.Join(m.Wipe(), m.Start()); err != nil {
		return err
	}
	return m.WaitReady(ctx)
}

// removeNamed removes the member with the given name, if it exists.
func removeNamed(ctx context.Context, cl *clientv3.Client, name string) error {
	list, err := cl.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.GetName() == name {
			_, err = cl.MemberRemove(ctx, m.GetID())
		}
	}
	return err
}

// addNamed adds a member with m's peer address as the others see it, unless it exists.
func addNamed(ctx context.Context, cl *clientv3.Client, m *testcluster.Member) error {
	list, err := cl.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, other := range list.Members {
		for _, url := range other.GetPeerURLs() {
			if strings.HasSuffix(url, "//"+m.Peer) {
				return nil
			}
		}
	}
	_, err = cl.MemberAdd(ctx, []string{"http://" + m.Peer})
	return err
}
