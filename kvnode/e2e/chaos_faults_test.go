package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/flood"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
)

// ballast is the maximum number of MB written until a full disk refuses an entry. The log
// has reserved several segments of 64 MB.
const ballast = 400

// stored is how many of these MB go into the store. A checkpoint then needs more than the free pages
// of its file, and fails. Otherwise each checkpoint would free segments of the log, and the
// disk would never have to allocate new space.
const stored = 40

// fullDisk fills the leader's disk. The leader reports it and still serves reads, another
// member takes over, and the cluster serves. When space is free again, the member recovers by itself.
func (c *chaos) fullDisk() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*recovery)
	defer cancel()
	m := c.small
	if err := c.makeLead(ctx, m); err != nil {
		return err
	}
	if err := c.disk.fill(); err != nil {
		return err
	}
	defer func() { _ = c.disk.free() }() // for what is judged after an error
	before := len(m.Log())
	if err := m.Use(func(cl *clientv3.Client) error { return c.untilFull(ctx, cl, m, before) }); err != nil {
		return err
	}
	if err := c.untilAside(ctx, m, before); err != nil {
		return fmt.Errorf("with a full disk: %w", err)
	}
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		return fmt.Errorf("with a full disk at %s the others do not serve: %w", m.Name, err)
	}
	if err := staleReads(ctx, m, "cut", 1, func(*clientv3.GetResponse) error { return nil }); err != nil {
		return fmt.Errorf("with a full disk %s does not serve reads: %w", m.Name, err)
	}
	if err := c.disk.free(); err != nil {
		return err
	}
	if err := untilReadyz(ctx, m, http.StatusOK); err != nil {
		return fmt.Errorf("once there is room again: %w", err)
	}
	return m.Use(func(cl *clientv3.Client) error {
		// Until m has caught up, a snapshot may cover the entry, and m then never learns its outcome.
		if err := load.Retry(ctx, func(ctx context.Context) error { _, err := cl.Delete(ctx, "ballast"); return err }); err != nil {
			return err
		}
		return putAndGet(ctx, cl, "there is room again")
	})
}

// untilFull fills the log through m until m's disk is full: m refuses a write, or logs the condition if
// another member leads by then. Entries that should not grow the store have a condition that is
// false.
func (c *chaos) untilFull(ctx context.Context, cl *clientv3.Client, m *testcluster.Member, before int) error {
	large := string(bytes.Repeat([]byte("x"), 1e6))
	var last error
	for n := range ballast {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, last = cl.Txn(one).If(clientv3.Compare(clientv3.Version("ballast"), "<", stored)).Then(clientv3.OpPut("ballast", large)).Commit()
		cancel()
		if errors.Is(last, rpctypes.ErrNoSpace) || strings.Contains(m.Log()[before:], fullText) {
			c.t.Logf("the disk of %s was full after %d MB", m.Name, n)
			return nil
		}
		if !m.Running() {
			return fmt.Errorf("a full disk has ended %s:\n%s", m.Name, m.LogTail())
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(err, last)
		}
	}
	return errors.Join(fmt.Errorf("%s took %d MB with a full disk, want %w", m.Name, ballast, rpctypes.ErrNoSpace), last)
}

// Log lines of a member about its disk.
const (
	fullText    = "disk is full"
	hasRoomText = "disk has room again"
)

// untilAside waits until a member with a full disk is not ready and another one leads,
// or until a checkpoint has freed segments of the log, which bbolt can do without new space.
func (c *chaos) untilAside(ctx context.Context, m *testcluster.Member, before int) error {
	for {
		if strings.Contains(m.Log()[before:], hasRoomText) {
			c.t.Logf("a checkpoint of %s has made room on its full disk", m.Name)
			return nil
		}
		code, body := page(ctx, m, "/readyz")
		lead, err := c.c.Leader(ctx)
		if code == http.StatusServiceUnavailable && err == nil && lead != m {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("/readyz of %s was %d last, want 503, and another leader (%w)\n%s", m.Name, code, err, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// makeLead transfers leadership to m.
func (c *chaos) makeLead(ctx context.Context, m *testcluster.Member) error {
	return load.Retry(ctx, func(ctx context.Context) error {
		s, err := m.Status(ctx)
		if err != nil || s.Leader == s.Header.GetMemberId() {
			return err
		}
		lead, err := c.c.Leader(ctx)
		if err != nil {
			return err
		}
		return lead.Use(func(cl *clientv3.Client) error {
			_, err := cl.MoveLeader(ctx, s.Header.GetMemberId())
			return err
		})
	})
}

// untilReadyz waits until a member answers /readyz with the given code.
func untilReadyz(ctx context.Context, m *testcluster.Member, code int) error {
	for {
		got, body := page(ctx, m, "/readyz")
		if got == code {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("/readyz of %s was %d last, want %d: %w\n%s", m.Name, got, code, ctx.Err(), body)
		case <-time.After(5 * time.Millisecond):
		}
		if !m.Running() {
			return fmt.Errorf("%s has ended, want %d of /readyz:\n%s", m.Name, code, m.LogTail())
		}
	}
}

// chaosFlood is the duration of a flood of the leader. With -slow it is floodLasts.
const chaosFlood = 3 * time.Second

// floodTheLeader floods the leader. On a busy machine the flood may be too slow to count, or the leader
// may change for other reasons, so without -slow one success of three is enough.
func (c *chaos) floodTheLeader() error {
	if *slowFlag {
		return c.floodOnce(floodLasts)
	}
	var errs []error
	for lasts := chaosFlood; len(errs) < 3; lasts *= 2 {
		err := c.floodOnce(lasts)
		if err == nil {
			return nil
		}
		c.t.Log(err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// floodOnce floods the leader, which must keep its leadership and serve clients meanwhile.
func (c *chaos) floodOnce(lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*recovery)
	defer cancel()
	lead, err := c.c.Leader(ctx)
	if err != nil {
		return err
	}
	before, err := lead.WaitStatus(ctx)
	if err != nil {
		return err
	}
	kind := flood.Kinds[0]
	if *slowFlag {
		kind = flood.Kinds[c.random.IntN(len(flood.Kinds))]
	}
	flooding, end := context.WithTimeout(ctx, lasts)
	defer end()
	rounds, wait := floodMember(flooding, lead, kind)
	for flooding.Err() == nil && err == nil {
		err = c.l.WaitProgress(ctx, progress)
	}
	end()
	wait()
	if err != nil {
		return fmt.Errorf("while clients flood the leader by %q the cluster does not serve: %w", kind.Name, err)
	}
	after, err := anyStatus(ctx, c.c)
	if err != nil {
		return err
	}
	c.t.Logf("a flood of %q for %v: %d rounds", kind.Name, lasts, rounds.Load())
	if after.RaftTerm != before.RaftTerm || after.Leader != before.Leader {
		return fmt.Errorf("a flood of %q cost %s its leadership: term %d and leader %x became %d and %x",
			kind.Name, lead.Name, before.RaftTerm, before.Leader, after.RaftTerm, after.Leader)
	}
	return nil
}

// The concurrent values add up to twice the leader's limit of uncommitted bytes, 8 MiB.
const (
	largeClients = 16
	largeEach    = 2
	largeBytes   = 1e6
)

// largeValues lets many clients write large values through one follower. Each write is
// answered, and each member has all values.
func (c *chaos) largeValues() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*recovery)
	defer cancel()
	lead, err := c.c.Leader(ctx)
	if err != nil {
		return err
	}
	by := c.others(lead)[c.random.IntN(len(c.c.Members())-1)]
	c.large++
	status, err := by.WaitStatus(ctx)
	if err != nil {
		return err
	}
	begun, before := time.Now(), len(by.Log())
	doubt := func(err error) bool { return inDoubt(ctx, by, err, status.RaftTerm, before) }
	err = by.Use(func(cl *clientv3.Client) error {
		return together(ctx, largeClients, func(ctx context.Context, i int) error { return c.putLarge(ctx, cl, i, doubt) })
	})
	if err != nil {
		return fmt.Errorf("by way of %s: %w", by.Name, err)
	}
	c.t.Logf("%d values of 1 MB by way of a follower in %v", largeClients*largeEach, time.Since(begun).Round(time.Millisecond))
	for _, m := range c.c.Members() {
		if err := c.checkLarge(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// inDoubt reports whether a write through m may fail with err. It may if nothing was written, if the
// leader has changed since term, or if m was sent a snapshot since then, which may cover
// the entry.
func inDoubt(ctx context.Context, m *testcluster.Member, err error, term uint64, before int) bool {
	s, unknown := m.WaitStatus(ctx)
	return unknown == nil && (errors.Is(err, rpctypes.ErrNoLeader) || s.RaftTerm != term || snapshotText.MatchString(m.Log()[before:]))
}

// putLarge writes the values of one client, each of them once unless the outcome is unknown.
func (c *chaos) putLarge(ctx context.Context, cl *clientv3.Client, client int, doubt func(error) bool) error {
	for n := 0; n < largeEach; n++ {
		one, cancel := context.WithTimeout(ctx, recovery)
		_, err := cl.Put(one, largeKey(client, n), string(c.largeValue(client, n)))
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && doubt(err):
			c.t.Logf("put 1 MB at %s again after: %v", largeKey(client, n), err)
			n--
		case err != nil:
			return fmt.Errorf("put 1 MB at %s: %w", largeKey(client, n), err)
		}
	}
	return nil
}

// checkLarge reads the values of putLarge from one member.
func (c *chaos) checkLarge(ctx context.Context, m *testcluster.Member) error {
	return m.Use(func(cl *clientv3.Client) error {
		for i := range largeClients * largeEach {
			client, n := i/largeEach, i%largeEach
			var got *clientv3.GetResponse
			err := load.Retry(ctx, func(ctx context.Context) (err error) {
				got, err = cl.Get(ctx, largeKey(client, n))
				return err
			})
			if err != nil {
				return fmt.Errorf("get 1 MB from %s: %w", m.Name, err)
			}
			if want := c.largeValue(client, n); valueOf(got) != string(want) {
				return fmt.Errorf("%s holds %s at %s, want %s", m.Name, load.Short([]byte(valueOf(got))), largeKey(client, n), load.Short(want))
			}
		}
		return nil
	})
}

func largeKey(client, n int) string { return fmt.Sprintf("large/%d/%d", client, n) }

// largeValue returns a different value for each client and number.
func (c *chaos) largeValue(client, n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%8d", c.large*largeClients*largeEach+client*largeEach+n), largeBytes/8)
}

var stockFlag = flag.String("stock", "", "unpatched etcd `binary`; -etcd is then etcd with contrib/etcd's patch, and the chaos test turns its gate on and off")

// leaseGate lets a patched etcd serve reads under the lease.
const leaseGate = "--feature-gates=LeaderLeaseReads=true"

// byLease matches the counter of reads that a member has served under its own lease.
const byLease = `etcd_server_leader_lease_reads_total\{path="lease"\}`

// leaseSteps are the steps for a patched etcd.
func (c *chaos) leaseSteps() []step {
	if c.p.Name != etcd || *stockFlag == "" {
		return nil
	}
	return []step{{"reads under the lease", c.readUnderLease}, {"gate off", c.turnLeaseOff}, {"reads under the lease again", c.readUnderLease}}
}

// readUnderLease transfers leadership to a restarted member and expects it to serve reads under its
// lease.
func (c *chaos) readUnderLease() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), recovery)
	defer cancel()
	m := c.anyMember()
	if err := c.makeLead(ctx, m); err != nil {
		return err
	}
	for before := metric(ctx, m, byLease); ; time.Sleep(50 * time.Millisecond) {
		served := metric(ctx, m, byLease) - before
		switch {
		case served >= progress:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s has served %v reads under its lease in %v, want %d", m.Name, served, recovery, progress)
		}
	}
}

// turnLeaseOff restarts a member without the gate, which waits for its promises to expire. Then stock
// etcd leads in its place, and then the patched etcd with the lease again.
func (c *chaos) turnLeaseOff() error {
	m := c.anyMember()
	on, patched := m.Flags, m.Program
	m.Flags = slices.DeleteFunc(slices.Clone(on), func(f string) bool { return f == leaseGate })
	if err := c.replaceProcess(m); err != nil {
		return fmt.Errorf("without the gate: %w", err)
	}
	if _, err := os.Stat(filepath.Join(m.Dir, "member", "lease-promise")); !os.IsNotExist(err) {
		return fmt.Errorf("without the gate its promise is kept for ever: %w", err)
	}
	m.Program = testcluster.Program{Name: etcd, Path: *stockFlag}
	if err := c.replaceProcess(m); err != nil {
		return fmt.Errorf("stock etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), recovery)
	defer cancel()
	if err := c.makeLead(ctx, m); err != nil {
		return fmt.Errorf("stock etcd: %w", err)
	}
	if err := c.l.WaitProgress(ctx, progress); err != nil {
		return fmt.Errorf("under stock etcd the cluster does not serve: %w", err)
	}
	m.Flags, m.Program = on, patched
	return c.replaceProcess(m)
}
