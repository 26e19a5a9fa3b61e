package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// nap is a leader that was paused, from its last sign of life until it has
// woken.
type nap struct {
	*client // of its own, to the sleeper alone
	sleeper int
	// lines are further connections to it, silent until it sleeps. A Go process that wakes up tends to look first where something has
	// arrived last: at these, before it hears from its peers that its term is
	// over. Until then nothing but the end of its lease keeps it from answering.
	lines []*client
	// before is what its last lease reads showed, end until when they kept
	// anybody else from leading.
	before sightings
	end    time.Time
	keys   []napKey
}

// close closes all connections.
func (n *nap) close() error {
	err := n.client.close()
	for _, l := range n.lines {
		err = errors.Join(err, l.close())
	}
	return err
}

// napKey is a key that is overwritten while the leader sleeps.
type napKey struct {
	written // while it sleeps; tries that failed may take effect yet
	old     string
}

const (
	// napKeys is how many of them there are, linesPerKey how many connections
	// there are for each.
	napKeys     = 4
	linesPerKey = 6
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
	won, err := p.nextLeader(ctx, n)
	p.claimf(n.unanswered(ctx), "%s, which led term %d, is paused: a question to it stays unanswered", n.m.name, n.before.term)
	if err != nil {
		return err
	}
	p.claimf(nil, "%s leads in term %d", p.clients[p.leader].m.name, p.term)
	p.notef("elected %s to %s after the pause", short(won.after.Sub(paused)), short(won.by.Sub(paused)))
	p.claimf(tooEarly(won.by, n.end), "nobody was seen to lead before the promise to %s had ended", n.m.name)
	p.notef("its last lease read left %s to serve and %s of margin: until %s after the pause",
		short(n.before.last.remaining), short(margin), short(n.end.Sub(paused)))
	if err := p.overwrite(ctx, n); err != nil {
		return err
	}
	p.claimf(nil, "writes go on: %d keys that %s knows were overwritten", len(n.keys), n.m.name)
	return nil
}

// pauseLeader pauses the leader while its lease is watched.
func (p *play) pauseLeader(ctx context.Context, n *nap) (paused time.Time, err error) {
	pr := p.probe(ctx, n.client)
	defer pr.stop() // on the way out after an error
	err = until(ctx, func(context.Context) error {
		if seen := pr.seen(); seen.count < minPairs {
			return fmt.Errorf("%s has served %d reads under its lease, not yet %d", n.m.name, seen.count, minPairs)
		}
		return nil
	})
	if err != nil {
		return paused, err
	}
	if err := n.m.pause(); err != nil {
		return paused, err
	}
	paused = time.Now()
	n.before = pr.stop()
	return paused, nil
}

// prepareNap finds the leader, connects to it, and writes the keys.
func (p *play) prepareNap(ctx context.Context) error {
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	c, err := newClient(p.members[p.leader])
	if err != nil {
		return err
	}
	n := &nap{client: c, sleeper: p.leader}
	p.nap = n // which is closed however the story goes on
	for i := range napKeys {
		w, err := p.writeNew(ctx, c, fmt.Sprintf("%snap%d", keyPrefix, i))
		if err != nil {
			return err
		}
		n.keys = append(n.keys, napKey{written: written{key: w.key}, old: w.values[0]})
		for range linesPerKey {
			line, err := newClient(c.m)
			if err != nil {
				return err
			}
			n.lines = append(n.lines, line)
			if err := p.readBack(ctx, line, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// requestBytes is less than any request takes on the wire.
const requestBytes = 20

// bytesOut is what was written to the lines.
func (n *nap) bytesOut() (sum int64) {
	for _, l := range n.lines {
		sum += l.written.Load()
	}
	return sum
}

// sent waits until that many requests were written to the lines, since bytesOut
// was from.
func (n *nap) sent(ctx context.Context, from int64, requests int) error {
	return until(ctx, func(context.Context) error {
		if got, want := n.bytesOut()-from, int64(requests*requestBytes); got < want {
			return fmt.Errorf("only %d bytes of at least %d were written", got, want)
		}
		return nil
	})
}

// margin asks for how long after the last read under its lease a leader keeps
// others from leading.
func (p *play) margin(ctx context.Context, c *client) (time.Duration, error) {
	r, err := c.status(ctx)
	return milliseconds(r.Lease.MarginMS), err
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// unanswered checks that the member does not answer.
func (n *nap) unanswered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := n.status(ctx); ctx.Err() == nil {
		return fmt.Errorf("it answered (%w)", orAnswer(err))
	}
	return nil
}

var errAnswer = errors.New("without an error")

func orAnswer(err error) error {
	if err == nil {
		return errAnswer
	}
	return err
}

// election is when a member won, as far as can be known from outside: it did not
// lead yet when asked at after, and said that it leads by by.
type election struct {
	member    int
	term      uint64
	after, by time.Time
}

// tooEarly checks that a new leader appeared no earlier than the old one's
// promises allowed.
func tooEarly(by, end time.Time) error {
	if by.Before(end) {
		return fmt.Errorf("one was seen %s earlier", short(end.Sub(by)))
	}
	return nil
}

// watchPause is between two questions whether a member leads.
const watchPause = 4 * time.Millisecond

// nextLeader waits until a member other than the sleeper leads in a later term.
func (p *play) nextLeader(ctx context.Context, n *nap) (election, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nobody else led within %v", patience))
	wins := make(chan election, size)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel() // first: the watchers end by it
	for i, c := range p.clients {
		if i == n.sleeper {
			continue
		}
		watchers.Go(func() {
			if e, ok := watchElection(ctx, c, p.term); ok {
				e.member = i
				wins <- e
			}
		})
	}
	select {
	case e := <-wins:
		p.leader, p.term = e.member, e.term
		return e, nil
	case <-ctx.Done():
		return election{}, context.Cause(ctx)
	}
}

// watchElection asks a member until it leads in a term after old.
func watchElection(ctx context.Context, c *client, old uint64) (e election, won bool) {
	e.after = time.Now()
	for ctx.Err() == nil {
		asked := time.Now()
		r, err := c.status(ctx)
		switch {
		case err != nil:
		case r.Role == "leader" && r.Term > old:
			e.term, e.by = r.Term, time.Now()
			return e, true
		default:
			e.after = asked
		}
		_ = sleep(ctx, watchPause)
	}
	return e, false
}

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
