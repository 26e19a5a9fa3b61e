package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// nap is a leader that was paused, from its last sign of life until it has
// woken.
type nap struct {
	*client // of its own, to the sleeper alone
	sleeper int
	// lines are further connections to it, silent until it sleeps. A Go process
	// that wakes up tends to look first where something has arrived last: at
	// these, before it hears from its peers that its term is over. Until then
	// nothing but the end of its lease keeps it from answering.
	lines []*client
	// before holds the answers of its last lease reads. end is when the promise
	// behind them ends, until which no other member may lead.
	before sightings
	end    time.Time
	// gap is the time from the last of those reads to the last check that found no other leader.
	gap  time.Duration
	keys []napKey
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

// prepareNap finds the leader, connects to it, and writes the keys.
func (p *play) prepareNap(ctx context.Context) error {
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	c, err := newClient(p.Members()[p.leader])
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
