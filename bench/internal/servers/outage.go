package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/testcluster"
)

const (
	// deathEvery is how often a read and a write begin, each at the next member. It bounds
	// the resolution of an outage; a shorter interval would be a load of its own.
	deathEvery = 5 * time.Millisecond
	// deathPatience is the timeout of one request.
	deathPatience = time.Second
)

// outages returns the longest times from at to end without an answer to a read, and to a
// write, that was sent after at.
func (p *probe) outages(at, end time.Time) (longest [2]time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, all := range p.mu.answers {
		longest[kind] = gap(all, at, end)
	}
	return longest
}

func gap(all []answer, at, end time.Time) (longest time.Duration) {
	var came []time.Time
	for _, a := range all {
		if a.err == nil && a.asked.After(at) && a.came.Before(end) {
			came = append(came, a.came)
		}
	}
	slices.SortFunc(came, time.Time.Compare)
	last := at
	for _, t := range append(came, end) {
		longest, last = max(longest, t.Sub(last)), t
	}
	return longest
}

// errorsSince counts the errors from at on by text, apart for clients of the leader and of
// the other members.
func (p *probe) errorsSince(kind, leader int, at time.Time) map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]int64)
	for _, a := range p.mu.answers[kind] {
		if a.err == nil || a.came.Before(at) {
			continue
		}
		from := "clients of the others: "
		if a.member == leader {
			from = "its own clients: "
		}
		all[from+text(a.err)]++
	}
	return all
}

// text is the text of an error of etcd's API, and of any other error the code alone: its text
// differs from call to call.
func text(err error) string {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Error()
	}
	if s, ok := status.FromError(err); ok {
		return s.Code().String()
	}
	return status.FromContextError(err).Code().String()
}

// Outage is the longest time, from an event on, in which no read and in which no write was
// answered. Errors counts what clients got instead, by text.
type Outage struct {
	What   string
	Time   [2]time.Duration // of reads and writes
	Errors [2]map[string]int64
}

const (
	// before is how long the probe runs before the death.
	before = 100 * time.Millisecond
	// after is how long reads and writes must be answered again before the outage is over,
	// with no gap above steady. A death may take effect some milliseconds after it was
	// ordered, and an answer in between must not end the measurement.
	after  = 500 * time.Millisecond
	steady = after / 2
	// gone is the least time that a leader is away before it comes back. It is above the
	// election timeout: kvnode learns to wait out shorter pauses.
	gone = 1500 * time.Millisecond
	// watched is how long a leader leads before it falls silent without ending. kvnode
	// learns for ten seconds how regular its leader is, which makes such an outage shorter.
	watched = 12 * time.Second
	// maxOutage ends a measurement without an answer.
	maxOutage = 15 * time.Second
)

// ErrNoAnswer says that reads or writes never came back.
var ErrNoAnswer = errors.New("reads or writes were not answered any more")

// Takes is about how long one measurement takes, the mean of the servers.
func (d *Death) Takes() time.Duration {
	if d.undo != nil {
		return watched + 4*time.Second
	}
	return 2500 * time.Millisecond
}

// Measure makes the leader die, measures the outage, and restores the cluster.
func (c *Cluster) Measure(ctx context.Context, d *Death) (all []Outage, err error) {
	if d.undo != nil {
		if err := durations.Sleep(ctx, watched); err != nil {
			return nil, err
		}
	}
	leader, err := c.agreed(ctx)
	if err != nil {
		return nil, err
	}
	clients, err := dialEach(c.Members())
	if err != nil {
		return nil, err
	}
	p, err := startProbe(ctx, clients, deathEvery, deathPatience)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.restore(ctx)) }()
	defer func() { err = errors.Join(err, p.close()) }()
	if err := durations.Sleep(ctx, before); err != nil {
		return nil, err
	}
	died := time.Now()
	one, err := p.measure(ctx, d.Name, leader, func() error {
		err := d.happen(ctx, c, leader)
		if err == nil && d.ended != nil {
			err = d.ended(ctx, c, leader)
		}
		return err
	})
	all = append(all, one)
	if err != nil || d.undo == nil {
		return all, err
	}
	if err := durations.Sleep(ctx, time.Until(died.Add(gone))); err != nil {
		return all, err
	}
	one, err = p.measure(ctx, d.UndoName, leader, func() error { return d.undo(c, leader) })
	return append(all, one), err
}

// dialEach returns a client of each member.
func dialEach(members []*testcluster.Member) (clients []*clientv3.Client, err error) {
	for _, m := range members {
		c, err := m.Client()
		if err != nil {
			return nil, errors.Join(err, kvclient.Close(clients))
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// measure makes an event happen, and waits until reads and writes are answered again.
func (p *probe) measure(ctx context.Context, what string, leader int, happen func() error) (Outage, error) {
	outage, at := Outage{What: what}, time.Now()
	if err := happen(); err != nil {
		return outage, fmt.Errorf("%s: %w", what, err)
	}
	for wait := after; ; wait = after / 10 {
		if err := durations.Sleep(ctx, wait); err != nil {
			return outage, err
		}
		now := time.Now()
		if p.isSteady(now) {
			outage.Time = p.outages(at, now)
			for kind := range outage.Errors {
				outage.Errors[kind] = p.errorsSince(kind, leader, at)
			}
			return outage, nil
		}
		if now.Sub(at) > maxOutage {
			return outage, fmt.Errorf("%s: %w within %v", what, ErrNoAnswer, maxOutage)
		}
	}
}

// isSteady reports whether reads and writes have been answered for the last time of after.
func (p *probe) isSteady(now time.Time) bool {
	longest := p.outages(now.Add(-after), now)
	return max(longest[0], longest[1]) <= steady
}
