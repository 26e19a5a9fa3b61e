package demo

import (
	"context"
	"fmt"
	"time"
)

// freeze: the leader is paused, and another takes over.
func (p *play) freeze(ctx context.Context) error {
	if err := p.prepareNap(ctx); err != nil {
		return err
	}
	n := p.nap
	margin, err := p.margin(ctx, n.client)
	if err != nil {
		return err
	}
	paused, err := p.pauseLeader(ctx, n)
	if err != nil {
		return err
	}
	n.end = n.before.until.Add(margin)
	won, err := p.nextLeader(ctx, n.sleeper)
	p.claimf(n.unanswered(ctx), "%s, which led term %d, is paused: a question to it stays unanswered", n.m.Name, n.before.term)
	if err != nil {
		return err
	}
	n.gap = won.after.Sub(n.before.last.Called)
	p.claimf(nil, "%s leads in term %d", p.clients[p.leader].m.Name, p.term)
	p.notef("elected %s to %s after the pause", short(won.after.Sub(paused)), short(won.by.Sub(paused)))
	p.claimf(tooEarly(won.by, n.end), "no member was seen to lead before the promise to %s had ended", n.m.Name)
	p.notef("its last lease read left %s to serve and %s of margin: until %s after the pause",
		short(n.before.last.Remaining), short(margin), short(n.end.Sub(paused)))
	if err := p.overwrite(ctx, n); err != nil {
		return err
	}
	p.claimf(nil, "writes go on: %d keys that %s knows were overwritten", len(n.keys), n.m.Name)
	return nil
}

// pauseLeader pauses the leader while its lease is watched.
func (p *play) pauseLeader(ctx context.Context, n *nap) (paused time.Time, err error) {
	pr := p.probe(ctx, n.client)
	defer pr.stop() // on the way out after an error
	err = until(ctx, func(context.Context) error {
		if seen := pr.seen(); seen.count < minPairs {
			return fmt.Errorf("%s has served %d reads under its lease, not yet %d", n.m.Name, seen.count, minPairs)
		}
		return nil
	})
	if err != nil {
		return paused, err
	}
	if err := n.m.Pause(); err != nil {
		return paused, err
	}
	paused = time.Now()
	n.before = pr.stop()
	return paused, nil
}

// margin asks for how long after the last read under its lease a leader keeps
// others from leading.
func (p *play) margin(ctx context.Context, c *client) (margin time.Duration, err error) {
	err = until(ctx, func(ctx context.Context) error {
		r, err := c.status(ctx)
		margin = milliseconds(r.Lease.MarginMS)
		return err
	})
	return margin, err
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// overwrite gives the keys new values while their old leader sleeps.
func (p *play) overwrite(ctx context.Context, n *nap) error {
	for i := range n.keys {
		k := &n.keys[i]
		err := until(ctx, func(ctx context.Context) error {
			value, err := p.director.put(ctx, p.clients[p.leader], k.key)
			k.values = append(k.values, value)
			return err
		})
		if err != nil {
			return fmt.Errorf("overwrite %s: %w", k.key, err)
		}
	}
	return nil
}
