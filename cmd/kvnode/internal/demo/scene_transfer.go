package demo

import (
	"context"
	"fmt"
	"strconv"
)

// transfer: leadership is transferred.
func (p *play) transfer(ctx context.Context) error {
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	from, to := p.clients[p.leader], p.followers()[0]
	if to == p.crashed { // it may be in its restart hold, and must then refuse to lead
		to = p.followers()[1]
	}
	old, next := p.probe(ctx, from), p.probe(ctx, to)
	defer old.stop()
	defer next.stop()
	err := until(ctx, func(context.Context) error { return served(from, old.seen()) })
	if err != nil {
		return err
	}
	tries := 0
	err = until(ctx, func(ctx context.Context) error {
		tries++
		return p.moveLeader(ctx, to)
	})
	if err != nil {
		return err
	}
	p.claimf(nil, "%s leads in term %d, as %s was asked to arrange", to.m.Name, p.term, from.m.Name)
	if err := until(ctx, func(context.Context) error { return served(to, next.seen()) }); err != nil {
		return err
	}
	last, first := old.stop(), next.stop()
	p.claimf(inTurn(last, first), "%s serves under a lease of its own, and %s has not since", to.m.Name, from.m.Name)
	if tries > 1 {
		p.notef("it took %d tries", tries)
		return nil
	}
	p.notef("no lease for %s; when the leader froze there was none for %s at least", short(first.first.Returned.Sub(last.last.Called)), short(p.nap.gap))
	return nil
}

// served checks that a member was seen to serve under its lease.
func served(c *client, seen sightings) error {
	if seen.count == 0 {
		return fmt.Errorf("%s has served no read under its lease", c.m.Name)
	}
	return nil
}

// inTurn checks that the old leader did not serve after the new one had begun.
func inTurn(old, next sightings) error {
	if next.term > old.term && old.last.Called.After(next.first.Returned) {
		return fmt.Errorf("it has, %s later", short(old.last.Called.Sub(next.first.Returned)))
	}
	return nil
}

// moveLeader asks the leader to transfer leadership to a member, unless that member leads
// already.
func (p *play) moveLeader(ctx context.Context, to *client) error {
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	if p.clients[p.leader] == to {
		return nil
	}
	r, err := to.status(ctx)
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(r.ID, 16, 64)
	if err != nil {
		return fmt.Errorf("member ID of %s: %w", to.m.Name, err)
	}
	if _, err := p.clients[p.leader].MoveLeader(ctx, id); err != nil {
		return fmt.Errorf("transfer leadership to %s: %w", to.m.Name, err)
	}
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	return differs("the leader", p.clients[p.leader].m.Name, to.m.Name)
}
