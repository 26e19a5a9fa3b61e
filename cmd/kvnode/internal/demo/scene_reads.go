package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
	// underLease counts reads that asked for the lease and got it, mistaken
	// those that asked for a quorum round and did not.
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
