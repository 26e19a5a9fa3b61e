package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/internal/pause"
)

// Away is for how long no read and no write was answered after something had happened: the
// longest time without an answer from then on. Told counts what clients were told instead.
type Away struct {
	What string
	Time [2]time.Duration
	Told [2]map[string]int64
}

const (
	// before is how long the probe runs before the death, and after for how long all must have
	// been answered again: what follows an election is seen, too. steady is the longest time
	// without an answer in it. A death may take effect a few milliseconds after it was
	// ordered: what is answered meanwhile does not mean that all is over.
	before = 100 * time.Millisecond
	after  = 500 * time.Millisecond
	steady = after / 2
	// gone is for how long at least a leader is away that comes back. Shorter: it was no death
	// to who waits for an election timeout, but a stall, and kvnode learns to sit such ones out.
	gone = 1500 * time.Millisecond
	// watched is for how long a leader leads before it falls silent and lives on: kvnode learns
	// for ten seconds how silent its leader is, and what it learns makes such a death short.
	watched = 12 * time.Second
	// mostAway is after what time nobody waits any more.
	mostAway = 15 * time.Second
)

// ErrAway says that reads or writes never came back.
var ErrAway = errors.New("deaths: nothing was answered any more")

// Takes is how long one measurement takes, about, the mean of the servers.
func (d *Death) Takes() time.Duration {
	if d.undo != nil {
		return watched + 4*time.Second
	}
	return 2500 * time.Millisecond
}

// Measure lets the leader die, measures, and restores the cluster.
func (c *Cluster) Measure(ctx context.Context, d *Death) (all []Away, err error) {
	if d.undo != nil {
		if err := pause.For(ctx, watched); err != nil {
			return nil, err
		}
	}
	leader, err := c.agreed(ctx)
	if err != nil {
		return nil, err
	}
	p, err := begin(ctx, c.Members())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.restore(ctx)) }()
	defer func() { err = errors.Join(err, p.close()) }()
	if err := pause.For(ctx, before); err != nil {
		return nil, err
	}
	died := time.Now()
	one, err := p.measure(ctx, d.Name, leader, func() error {
		err := d.happen(ctx, c, leader)
		if err == nil && d.ended != nil {
			err = d.ended(ctx, c, leader)
		}
		return err
	})
	all = append(all, one)
	if err != nil || d.undo == nil {
		return all, err
	}
	if err := pause.For(ctx, time.Until(died.Add(gone))); err != nil {
		return all, err
	}
	one, err = p.measure(ctx, d.UndoName, leader, func() error { return d.undo(c, leader) })
	return append(all, one), err
}

// measure has something happen, and watches until all is answered again.
func (p *probe) measure(ctx context.Context, what string, leader int, happen func() error) (Away, error) {
	away, at := Away{What: what}, time.Now()
	if err := happen(); err != nil {
		return away, fmt.Errorf("%s: %w", what, err)
	}
	for wait := after; ; wait = after / 10 {
		if err := pause.For(ctx, wait); err != nil {
			return away, err
		}
		now := time.Now()
		if p.isSteady(now) {
			away.Time = p.away(at, now)
			for kind := range away.Told {
				away.Told[kind] = p.told(kind, leader, at)
			}
			return away, nil
		}
		if now.Sub(at) > mostAway {
			return away, fmt.Errorf("%s: %w within %v", what, ErrAway, mostAway)
		}
	}
}

// isSteady reports whether reads and writes have been answered for a while.
func (p *probe) isSteady(now time.Time) bool {
	longest := p.away(now.Add(-after), now)
	return max(longest[0], longest[1]) <= steady
}
