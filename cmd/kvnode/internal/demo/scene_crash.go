package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderlease/go/kvnode/server/status"
)

// missedWrites is how many writes a member must miss before it comes back.
const missedWrites = 100

// crash: a follower dies and comes back.
func (p *play) crash(ctx context.Context) error {
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	victim := p.followers()[0]
	if err := victim.m.Kill(); err != nil {
		return err
	}
	before := p.cast.writes.Load()
	err := until(ctx, func(context.Context) error {
		if n := p.cast.writes.Load() - before; n < missedWrites {
			return fmt.Errorf("%d writes were acknowledged, not yet %d", n, missedWrites)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("without %s: %w", victim.m.Name, err)
	}
	p.claimf(nil, "%s was killed; the other two acknowledged %d writes without it", victim.m.Name, p.cast.writes.Load()-before)

	var target status.Report
	err = until(ctx, func(ctx context.Context) (err error) {
		target, err = p.clients[p.leader].status(ctx)
		return err
	})
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := victim.m.Start(); err != nil {
		return err
	}
	err = until(ctx, func(ctx context.Context) error {
		r, err := victim.status(ctx)
		if err == nil && (!r.Ready || r.Applied < target.Applied) {
			err = fmt.Errorf("%s has applied %d of %d entries", victim.m.Name, r.Applied, target.Applied)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.claimf(nil, "started again, it has applied all %d entries that the leader had then", target.Applied)
	p.notef("in %s", short(time.Since(begun)))
	return p.sameHash(ctx)
}
