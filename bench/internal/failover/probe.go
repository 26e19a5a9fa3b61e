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
