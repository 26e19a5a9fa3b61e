package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/kvclient"
)

const (
	// waitingReads is how many linearizable reads wait for the sleeper, per key,
	// each on a line of its own; localReads how many serializable ones do. The
	// search for an order limits the clients of one key.
	waitingReads = linesPerKey
	localReads   = 3
	// lullTime lets requests reach the socket after they were written.
	lullTime = 100 * time.Millisecond
)

// shown is what a read at the woken leader was told.
type shown struct {
	key   napKey
	local bool
	value string
	err   error
}

// tally counts what was shown.
type tally struct{ fresh, refused, stale, foreign int }

func (t *tally) add(s shown) {
	switch {
	case s.err != nil:
		t.refused++
	case slices.Contains(s.key.values, s.value):
		t.fresh++
	case s.value == s.key.old:
		t.stale++
	default:
		t.foreign++
	}
}

// linearizable checks what reads may show that were sent after the new values
// had been acknowledged.
func (t *tally) linearizable() error {
	if t.stale > 0 || t.foreign > 0 {
		return fmt.Errorf("%d showed the old value and %d one that was never there", t.stale, t.foreign)
	}
	return nil
}

// awake: the old leader wakes with reads in its socket.
func (p *play) awake(ctx context.Context) error {
	n := p.nap
	b := p.sendToSleeper(ctx, n)
	p.claimf(n.waiting(ctx, b), "%d reads of them were sent to %s after that, and wait in its sockets", b.count, n.m.Name)

	watched := make(chan error, 1)
	go func() { watched <- n.watchStatus(ctx) }()
	if err := sleep(ctx, lullTime); err != nil {
		return err
	}
	if err := n.m.Resume(); err != nil {
		return err
	}
	var all, local tally
	for range b.count {
		s := <-b.results // each ends with its context
		if s.local {
			local.add(s)
			continue
		}
		all.add(s)
	}
	p.claimf(all.linearizable(), "awake again, it answered %d linearizable reads: %d with the new value, %d with an error, %d with the old",
		all.fresh+all.refused+all.stale+all.foreign, all.fresh, all.refused, all.stale)
	p.notef("for contrast: of %d serializable reads, which may be stale, %d showed the old value", localReads*len(n.keys), local.stale)
	if r, err := n.status(ctx); err == nil {
		p.notef("why its lease has refused reads so far: %s", list(r.Refused))
	}
	p.claimf(<-watched, "it never called its old lease valid, and its status says not_leader")
	for _, k := range n.keys {
		if err := p.readBack(ctx, n.client, k.written); err != nil {
			return err
		}
	}
	p.claimf(nil, "as a follower it serves linearizable reads again")
	return nil
}

// batch is reads that were sent to the sleeper.
type batch struct {
	count   int
	from    int64      // bytesOut before
	results chan shown // one for each
}

// sendToSleeper sends reads of all kinds, on all lines.
func (p *play) sendToSleeper(ctx context.Context, n *nap) batch {
	b := batch{count: len(n.keys) * (waitingReads + localReads), from: n.bytesOut()}
	b.results = make(chan shown, b.count)
	send := func(k napKey, local bool, read func(context.Context) (kvclient.Answer, error)) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		got, err := read(ctx)
		b.results <- shown{key: k, local: local, value: got.Value, err: err}
	}
	for i, k := range n.keys {
		lines := n.lines[i*linesPerKey:][:linesPerKey]
		for j := range waitingReads {
			reader, line := p.cast.actor(), lines[j]
			go send(k, false, func(ctx context.Context) (kvclient.Answer, error) { return reader.get(ctx, line, k.key, modeLease) })
		}
		for j := range localReads {
			go send(k, true, func(ctx context.Context) (kvclient.Answer, error) { return lines[j].read(ctx, k.key, modeLocal) })
		}
	}
	return b
}

// waiting checks that the requests were written to the connections and that none
// was answered.
func (n *nap) waiting(ctx context.Context, b batch) error {
	if err := n.sent(ctx, b.from, b.count); err != nil {
		return err
	}
	if err := sleep(ctx, lullTime); err != nil {
		return err
	}
	if answered := len(b.results); answered > 0 {
		return fmt.Errorf("%d have ended already", answered)
	}
	return nil
}

// watchStatus asks the sleeper, beginning while it sleeps, until it says that it
// does not lead. In its old term it must not call its lease valid.
func (n *nap) watchStatus(ctx context.Context) error {
	var once sync.Once
	var claimed error
	line := n.lines[len(n.lines)-1]
	err := until(ctx, func(ctx context.Context) error {
		r, err := line.status(ctx)
		switch {
		case err != nil:
			return err
		case r.Lease.State == "valid" && r.Term == n.before.term:
			once.Do(func() {
				claimed = fmt.Errorf("in term %d it said that its lease was valid for %v ms more", r.Term, r.Lease.RemainingMS)
			})
			return claimed
		case r.Term > n.before.term && (r.Lease.State == "not_leader" || r.Role == "leader"):
			return nil // it leads only if it was elected anew
		}
		return fmt.Errorf("its lease is %q in term %d", r.Lease.State, r.Term)
	})
	return errors.Join(claimed, err)
}
