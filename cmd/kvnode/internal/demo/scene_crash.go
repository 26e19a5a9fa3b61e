package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode/server/status"
	"github.com/leaderlease/go/leaderlease/detector"
)

// missedWrites is how many writes a member must miss before it comes back.
const missedWrites = 100

// crash: the leader dies, another one takes over, and it comes back.
func (p *play) crash(ctx context.Context) error {
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	victim, err := p.killLeader(ctx)
	if err != nil {
		return err
	}
	before := p.cast.writes.Load()
	err = until(ctx, func(context.Context) error {
		if n := p.cast.writes.Load() - before; n < missedWrites {
			return fmt.Errorf("%d writes were acknowledged, not yet %d", n, missedWrites)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("without %s: %w", victim.m.Name, err)
	}
	p.claimf(nil, "the other two acknowledged %d writes without it", p.cast.writes.Load()-before)

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

// killLeader kills the leader, and waits until the others answer.
func (p *play) killLeader(ctx context.Context) (*client, error) {
	victim, others, old := p.clients[p.leader], p.followers(), p.leader
	p.crashed = victim
	before, err := byHint(ctx, others)
	if err != nil {
		return nil, err
	}
	killed := time.Now()
	if err := victim.m.Kill(); err != nil {
		return nil, err
	}
	var away [2]time.Duration // reads, writes
	var errs [2]error
	var asking sync.WaitGroup
	asking.Go(func() {
		_, errs[0] = firstOf(ctx, p, others, firstRead)
		away[0] = time.Since(killed)
	})
	asking.Go(func() {
		// Each try has a key of its own, since one that failed may take effect yet.
		_, errs[1] = firstOf(ctx, p, others, func(ctx context.Context, a *actor, c *client, try int) (string, error) {
			return a.put(ctx, c, fmt.Sprintf("%scrash-%s-%d", keyPrefix, c.m.Name, try))
		})
		away[1] = time.Since(killed)
	})
	asking.Wait()
	if err := errors.Join(errs[0], errs[1]); err != nil {
		return nil, fmt.Errorf("after %s was killed: %w", victim.m.Name, err)
	}
	if _, err := p.nextLeader(ctx, old); err != nil {
		return nil, err
	}
	after, err := byHint(ctx, others)
	if err == nil && after == before {
		err = errors.New("they waited for silence")
	}
	p.claimf(err, "%s, which led, was killed: its connections told the others, and %s leads since their promises have ended", victim.m.Name, p.clients[p.leader].m.Name)
	p.notef("reads were away for %s, writes for %s", short(away[0]), short(away[1]))
	return victim, p.tellFailOver(ctx)
}

// byHint counts the fail-overs in which members did not wait for silence.
func byHint(ctx context.Context, members []*client) (n uint64, err error) {
	for _, c := range members {
		err = errors.Join(err, until(ctx, func(ctx context.Context) error {
			r, err := c.status(ctx)
			n += r.Suspicions.FailOvers[detector.ConnClosed.String()]
			return err
		}))
	}
	return n, err
}

// tellFailOver says how long each part of the last one took, as the leader has seen it.
func (p *play) tellFailOver(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error {
		r, err := p.clients[p.leader].status(ctx)
		last := r.Suspicions.Last
		if err != nil || last == nil {
			return err
		}
		if last.CommitMS == 0 {
			return errors.New("it has not told yet when it has committed something")
		}
		p.notef("by %s: %s after the last sign of life it was suspected; promise %s, election %s, first commit %s", last.Began,
			short(milliseconds(last.HintMS)), short(milliseconds(last.PromiseMS)), short(milliseconds(last.ElectionMS)), short(milliseconds(last.CommitMS)))
		return nil
	})
}
