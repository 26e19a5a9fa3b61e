package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/leaderlease/go/internal/testcluster"
)

var stockFlag = flag.String("stock", "", "unpatched etcd `binary`; -etcd is then etcd with contrib/etcd's patch, and the chaos test turns its gate on and off")

// leaseGate lets a patched etcd serve reads under the lease.
const leaseGate = "--feature-gates=LeaderLeaseReads=true"

// byLease counts the reads that a member has served under its own lease.
const byLease = `etcd_server_leader_lease_reads_total\{path="lease"\}`

// leaseSteps are those for etcd with the lease.
func (c *chaos) leaseSteps() []step {
	if c.p.Name != etcd || *stockFlag == "" {
		return nil
	}
	return []step{{"reads under the lease", c.readUnderLease}, {"gate off", c.turnLeaseOff}, {"reads under the lease again", c.readUnderLease}}
}

// readUnderLease makes some member lead, which kills have restarted on its log, and
// wants it to serve reads under its lease.
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

// turnLeaseOff runs a member without the gate, which waits for its promises to end,
// then stock etcd in its place, which leads, and then the lease again.
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
