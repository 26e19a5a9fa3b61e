package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/internal/testcluster"
)

const (
	// probeEvery is how often a read and a write begin, each at the next member. It bounds
	// the resolution of an outage; a shorter interval would be a load of its own.
	probeEvery = 5 * time.Millisecond
	// probePatience is the timeout of one request. Later ones do not wait for it.
	probePatience = time.Second
	probeKey      = "/probe"
)

// probe is a client that sends to all members in turn, at a fixed rate: a request does not
// wait for the answers to earlier ones.
type probe struct {
	clients []*clientv3.Client
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		answers [2][]answer // of reads and writes
		errors  [2][]refusal
	}
}

// answer is a request that succeeded.
type answer struct{ asked, came time.Time }

// refusal is a request that failed.
type refusal struct {
	came   time.Time
	member int
	err    error
}

// begin connects to all members, and starts the requests.
func begin(ctx context.Context, members []*testcluster.Member) (*probe, error) {
	p := &probe{}
	for _, m := range members {
		c, err := m.Client()
		if err == nil {
			p.clients = append(p.clients, c)
			err = p.connect(ctx, c)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ask %s: %w", m.Name, err), p.close())
		}
	}
	ctx, p.cancel = context.WithCancel(ctx)
	for kind := range p.mu.answers {
		p.running.Go(func() { p.run(ctx, kind) })
	}
	return p, nil
}

// connect sends reads until one is answered.
func (p *probe) connect(ctx context.Context, c *clientv3.Client) error {
	for begun := time.Now(); ; {
		err := p.ask(ctx, c, 0)
		if err == nil || time.Since(begun) > agreeTimeout {
			return err
		}
		if err := load.Sleep(ctx, askPause); err != nil {
			return err
		}
	}
}

func (p *probe) close() error {
	if p.cancel != nil {
		p.cancel()
	}
	p.running.Wait()
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (p *probe) run(ctx context.Context, kind int) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.running.Go(func() {
			asked, member := time.Now(), n%len(p.clients)
			err := p.ask(ctx, p.clients[member], kind)
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.mu.errors[kind] = append(p.mu.errors[kind], refusal{time.Now(), member, err})
				return
			}
			p.mu.answers[kind] = append(p.mu.answers[kind], answer{asked, time.Now()})
		})
	}
}

func (p *probe) ask(ctx context.Context, c *clientv3.Client, kind int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if kind == 0 {
		_, err = c.Get(ctx, probeKey)
	} else {
		_, err = c.Put(ctx, probeKey, "here")
	}
	return err
}

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
		if a.asked.After(at) && a.came.Before(end) {
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
	for _, r := range p.mu.errors[kind] {
		if r.came.Before(at) {
			continue
		}
		from := "clients of the others: "
		if r.member == leader {
			from = "its own clients: "
		}
		all[from+text(r.err)]++
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
var ErrNoAnswer = errors.New("failover: reads or writes were not answered any more")

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
		if err := load.Sleep(ctx, watched); err != nil {
			return nil, err
		}
	}
	leader, err := c.agreed(ctx)
	if err != nil {
		return nil, err
	}
	p, err := begin(ctx, c.Members())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.restore(ctx)) }()
	defer func() { err = errors.Join(err, p.close()) }()
	if err := load.Sleep(ctx, before); err != nil {
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
	if err := load.Sleep(ctx, time.Until(died.Add(gone))); err != nil {
		return all, err
	}
	one, err = p.measure(ctx, d.UndoName, leader, func() error { return d.undo(c, leader) })
	return append(all, one), err
}

// measure makes an event happen, and waits until reads and writes are answered again.
func (p *probe) measure(ctx context.Context, what string, leader int, happen func() error) (Outage, error) {
	outage, at := Outage{What: what}, time.Now()
	if err := happen(); err != nil {
		return outage, fmt.Errorf("%s: %w", what, err)
	}
	for wait := after; ; wait = after / 10 {
		if err := load.Sleep(ctx, wait); err != nil {
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
