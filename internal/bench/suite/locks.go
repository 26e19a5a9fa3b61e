package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/bench/wire"
)

// LockPlan is what the locks of clientv3/concurrency are measured with.
type LockPlan struct {
	Beside
	// Clients are the numbers of clients of the parallel and the contended
	// measurements.
	Clients []int
}

// lockWork is who takes which locks.
type lockWork struct {
	kind    string
	clients int
	shared  bool
}

func (p *LockPlan) works() []lockWork {
	all := []lockWork{{"sequential", 1, false}}
	for _, n := range p.Clients {
		all = append(all, lockWork{"parallel", n, false}, lockWork{"contended", n, true})
	}
	return all
}

// sessionTime is what opening and closing a client with its session takes.
const sessionTime = 10 * time.Millisecond

// Locks plans the measurement of locks.
func (s *Suite) Locks(p LockPlan) {
	s.beside(report.Locks, &p.Beside, func(servers []*besides, size int) {
		for round := range p.Rounds {
			for _, w := range p.works() {
				name := fmt.Sprintf("locks: members=%d, round %d, %s, %d clients", size, round+1, w.kind, w.clients)
				takes := p.Warmup + p.Duration + time.Duration(w.clients)*sessionTime
				s.inTurn(servers, round, name, takes, func(ctx context.Context, c *besides) error {
					return s.lock(ctx, &p, c, w, round)
				})
			}
		}
	})
}

func (s *Suite) lock(ctx context.Context, p *LockPlan, c *besides, w lockWork, round int) (err error) {
	l, err := wire.NewLockers(ctx, c.Endpoints, w.clients, w.shared)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	res, err := l.Measure(ctx, p.times())
	if err != nil {
		return err
	}
	where := report.Measurement{
		Layer: report.Locks, Arm: c.Name, Round: round, Elapsed: res.Elapsed, Sample: 1,
		Group: report.Group{{Key: "kind", Value: w.kind}, {Key: "clients", Value: fmt.Sprint(w.clients)}, members(len(c.Endpoints))},
	}
	acquire := where
	acquire.Stale = res.Overlaps
	s.Report.AddTally(acquire, "acquire", res.Acquire)
	s.Report.AddTally(where, "release", res.Release)
	return nil
}
