package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/kvnode/server/status"
	"github.com/leaderlease/go/leaderlease/detector"
)

// firstKey is the first key that the story reads.
const firstKey = keyPrefix + "first"

// election: three fresh nodes, up to the first read and write.
func (p *play) election(ctx context.Context) error {
	begun := time.Now()
	if err := p.Start(); err != nil {
		return err
	}
	first, err := firstOf(ctx, p, p.clients, firstRead)
	if err != nil {
		return err
	}
	p.claimf(differs("a key that was never written", first.Value, ""), "a linearizable read was answered, and shows an empty store")
	p.notef("%s after the first process was started", short(first.Returned.Sub(begun)))

	if err := p.findLeader(ctx); err != nil {
		return err
	}
	leader := p.clients[p.leader]
	p.claimf(nil, "all three name %s as leader of term %d, and so does %s itself", leader.m.Name, p.term, leader.m.Name)
	// The next scenes freeze the leader and kill one of the other two.
	others := p.followers()
	p.notef("a browser shows the leases as they are: %s, or %s", pageOf(others[0]), pageOf(others[1]))

	written, err := p.writeNew(ctx, leader, firstKey)
	if err != nil {
		return err
	}
	for _, c := range p.followers() {
		if err := p.readBack(ctx, c, written); err != nil {
			return err
		}
	}
	p.claimf(nil, "what was written at %s is read at the other two", leader.m.Name)
	return nil
}

// firstOf asks members until one of them answers. Each try has a number.
func firstOf[T any](ctx context.Context, p *play, clients []*client, ask func(ctx context.Context, a *actor, c *client, try int) (T, error)) (first T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nothing was answered within %v", patience))
	answers := make(chan T, len(clients))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel() // before the wait below: it ends the requests
	for _, c := range clients {
		a := p.cast.actor()
		asking.Go(func() {
			for try := 1; ctx.Err() == nil; try++ {
				if got, err := ask(ctx, a, c, try); err == nil {
					answers <- got
					return
				}
				_ = durations.Sleep(ctx, retryPause)
			}
		})
	}
	select {
	case first = <-answers:
		return first, nil
	case <-ctx.Done():
		return first, context.Cause(ctx)
	}
}

// firstRead reads a key.
func firstRead(ctx context.Context, a *actor, c *client, _ int) (kvclient.Answer, error) {
	return a.get(ctx, c, firstKey, modeAuto)
}

const (
	// pairs is how many reads of each kind are compared.
	pairs = 400
	// pairsTime bounds the comparison on a slow machine, minPairs keeps it a
	// comparison.
	pairsTime = 3 * time.Second
	minPairs  = 20
	// pairsTries is how often the comparison may be disturbed by an election.
	pairsTries = 5
)

// reads: load starts, and lease reads are compared with ReadIndex reads.
func (p *play) reads(ctx context.Context) error {
	p.load = startLoad(p.cast, p.clients)
	p.notef("%d clients read, write, delete and compare-and-swap from now on; all of it is recorded", workers)
	reader := p.cast.actor()
	var c comparison
	for try := 1; ; try++ {
		if err := p.findLeader(ctx); err != nil {
			return err
		}
		leader := p.clients[p.leader]
		c = comparison{key: fmt.Sprintf("%scompare%d", keyPrefix, try)}
		_, err := p.director.put(ctx, leader, c.key)
		if err == nil {
			err = c.run(ctx, reader, leader)
		}
		if err == nil && c.undisturbed() == nil {
			break
		}
		if try == pairsTries {
			break // the claims below say what is wrong
		}
	}
	p.claimf(c.undisturbed(), "%d of %d reads that asked for the lease were served under it, says their trailer", c.underLease, len(c.lease))
	p.claimf(c.distinct(), "none of %d ReadIndex reads by the same client was", len(c.readIndex))
	p.notef("lease read       median %-8s p99 %s", short(c.lease.quantile(0.5)), short(c.lease.quantile(0.99)))
	p.notef("ReadIndex read   median %-8s p99 %s", short(c.readIndex.quantile(0.5)), short(c.readIndex.quantile(0.99)))
	return nil
}

// comparison is of two kinds of read by one client at one member, in turn.
type comparison struct {
	key              string
	lease, readIndex latencies
	// underLease counts reads that asked for the lease and were served by it. mistaken counts
	// reads that asked for a quorum round and were served without one.
	underLease, mistaken int
}

func (c *comparison) run(ctx context.Context, reader *actor, leader *client) error {
	begun := time.Now()
	for n := range pairs {
		if n >= minPairs && time.Since(begun) > pairsTime {
			break
		}
		under, err := reader.get(ctx, leader, c.key, modeLease)
		if err != nil {
			return err
		}
		asked, err := reader.get(ctx, leader, c.key, modeReadIndex)
		if err != nil {
			return err
		}
		c.lease = append(c.lease, under.Returned.Sub(under.Called))
		c.readIndex = append(c.readIndex, asked.Returned.Sub(asked.Called))
		if under.Path == pathLease {
			c.underLease++
		}
		if asked.Path == pathLease {
			c.mistaken++
		}
	}
	return nil
}

// undisturbed fails if most reads had to do without the lease. Some may: on a
// busy machine heartbeats are late.
func (c *comparison) undisturbed() error {
	if len(c.lease) < minPairs {
		return fmt.Errorf("only %d reads were answered", len(c.lease))
	}
	if 2*c.underLease < len(c.lease) {
		return errors.New("that is less than half")
	}
	return nil
}

func (c *comparison) distinct() error {
	if c.mistaken > 0 {
		return fmt.Errorf("%d were served under the lease", c.mistaken)
	}
	return nil
}

// latencies are how long requests took.
type latencies []time.Duration

// quantile returns the value that a share q of all does not exceed.
func (l latencies) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// short rounds for a reader.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

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

// tellFailOver says how long each part of the last fail-over took, as the leader has seen it.
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
		p.notef("by %s: %s after the last sign of life it was suspected; promise %s, election %s, first commit %s", last.Cause,
			short(milliseconds(last.DetectedMS)), short(milliseconds(last.PromiseMS)), short(milliseconds(last.ElectionMS)), short(milliseconds(last.CommitMS)))
		return nil
	})
}
