package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/kvclient"
)

// probe is a client that begins a linearizable read and a write at a fixed rate, each at the
// next of its members. No request waits for the answers to earlier ones: a client that waited
// would fall behind a slow server, and hide the stall.
type probe struct {
	every time.Duration
	// ask makes a request to the member with that number.
	ask     func(ctx context.Context, member int, kind load.Kind) error
	clients []*clientv3.Client // one for each member

	cancel  context.CancelFunc // of the requests that run
	end     chan struct{}      // closed when no further request begins
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		answers [2][]answer // by kind
	}
}

// answer is a request that succeeded or failed. It was asked when it was due.
type answer struct {
	asked, came time.Time
	member      int
	err         error
}

const probeKey = "/probe"

// startProbe connects to the members, and starts the requests. A request may take as long as
// patience. The probe closes the clients.
func startProbe(ctx context.Context, clients []*clientv3.Client, every, patience time.Duration) (*probe, error) {
	for _, c := range clients {
		if err := connect(ctx, c); err != nil {
			return nil, errors.Join(err, kvclient.Close(clients))
		}
	}
	p := &probe{every: every, clients: clients}
	p.ask = func(ctx context.Context, member int, kind load.Kind) (err error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if kind == load.Read {
			_, err = clients[member].Get(ctx, probeKey)
		} else {
			_, err = clients[member].Put(ctx, probeKey, "")
		}
		return err
	}
	p.start(ctx)
	return p, nil
}

// connect sends reads until one is answered.
func connect(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, agreeTimeout)
	defer cancel()
	for {
		one, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := c.Get(one, probeKey)
		cancel()
		if err == nil {
			return nil
		}
		if stopped := durations.Sleep(ctx, askPause); stopped != nil {
			return fmt.Errorf("connect to %v: %w: %w", c.Endpoints(), stopped, err)
		}
	}
}

func (p *probe) start(ctx context.Context) {
	p.end = make(chan struct{})
	ctx, p.cancel = context.WithCancel(ctx)
	for kind := range p.mu.answers {
		p.running.Go(func() { p.run(ctx, load.Kind(kind)) })
	}
}

func (p *probe) run(ctx context.Context, kind load.Kind) {
	for n, due := 0, time.Now(); ; n, due = n+1, due.Add(p.every) {
		select {
		case <-p.end:
			return
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		p.running.Go(func() {
			a := answer{asked: due, member: n % max(len(p.clients), 1)}
			a.err = p.ask(ctx, a.member, kind)
			a.came = time.Now()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.mu.answers[kind] = append(p.mu.answers[kind], a)
		})
	}
}

// finish begins no further request, and waits for those that run: they count, too.
func (p *probe) finish() {
	close(p.end)
	p.running.Wait()
}

// close ends the requests that run.
func (p *probe) close() error {
	p.cancel()
	p.running.Wait()
	return kvclient.Close(p.clients)
}

// tally returns the latencies of a kind of requests from when each was due. What fails late
// is a stall, too.
func (p *probe) tally(kind load.Kind) *load.Tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := load.NewTally()
	for _, a := range p.mu.answers[kind] {
		took := a.came.Sub(a.asked)
		if a.err != nil {
			t.Fail(a.err)
			t.Late(took)
			continue
		}
		t.Record(took)
	}
	return t
}

const (
	// probeEvery is the interval between two requests of Probe. A shorter one would be a load
	// of its own.
	probeEvery    = 10 * time.Millisecond
	probePatience = 30 * time.Second
)

// Probe puts and reads at a fixed rate while fn runs, and returns the latencies by kind.
func Probe(ctx context.Context, endpoint string, fn func() error) (all [2]*load.Tally, err error) {
	clients, err := dial([]string{endpoint}, 1)
	if err != nil {
		return all, err
	}
	p, err := startProbe(ctx, clients, probeEvery, probePatience)
	if err != nil {
		return all, err
	}
	err = fn()
	p.finish()
	for kind := range all {
		all[kind] = p.tally(load.Kind(kind))
	}
	return all, errors.Join(err, p.close())
}
