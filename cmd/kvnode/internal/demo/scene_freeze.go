package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/kvclient"
)

// nap is the pause of a leader, the sleeper, from its last answer until it has woken.
type nap struct {
	*client // to the sleeper, for the nap alone
	sleeper int
	// lines are further connections to it, idle until it is paused. A Go process that wakes up
	// tends to read first from the connections with the newest data. These are the lines. From its
	// peers' connections it learns later that its term is over. Until then only the end of its
	// lease keeps it from answering.
	lines []*client
	// before summarizes the last reads under its lease. end is when the voters' promise to it
	// ends. Before end no other member may lead.
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

// napKey is a key that is overwritten while the leader is paused.
type napKey struct {
	written // while it sleeps; tries that failed may take effect yet
	old     string
}

const (
	// napKeys is the number of keys, linesPerKey the number of connections
	// for each.
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
	p.nap = n // tell closes it, also after an error
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

// requestBytes is less than the size of any request on the wire.
const requestBytes = 20

// bytesOut returns the number of bytes written to the lines.
func (n *nap) bytesOut() (sum int64) {
	for _, l := range n.lines {
		sum += l.written.Load()
	}
	return sum
}

// sent waits until that many requests have been written to the lines since bytesOut
// returned from.
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

// pauseLeader pauses the leader while a prober watches its lease.
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

// margin returns the leader's margin: the time from the end of its lease reads to the end of the
// voters' promise.
func (p *play) margin(ctx context.Context, c *client) (margin time.Duration, err error) {
	err = until(ctx, func(ctx context.Context) error {
		r, err := c.status(ctx)
		margin = milliseconds(r.Lease.MarginMS)
		return err
	})
	return margin, err
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// overwrite gives the keys new values while their old leader is paused.
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

const (
	// waitingReads is how many linearizable reads wait for the sleeper, per key,
	// each on a line of its own; localReads how many serializable ones do. The
	// search for an order limits the clients of one key.
	waitingReads = linesPerKey
	localReads   = 3
	// lullTime lets requests reach the socket after they have been written.
	lullTime = 100 * time.Millisecond
)

// shown is the answer of a read at the woken leader.
type shown struct {
	key   napKey
	local bool
	value string
	err   error
}

// tally counts the answers by kind.
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

// linearizable checks the answers of reads that were sent after the new values
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
	if err := durations.Sleep(ctx, lullTime); err != nil {
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

// batch is a set of reads that were sent to the paused leader.
type batch struct {
	count   int
	from    int64      // bytesOut before
	results chan shown // one for each
}

// sendToSleeper sends reads of all kinds on all lines to the paused leader.
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
	if err := durations.Sleep(ctx, lullTime); err != nil {
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
