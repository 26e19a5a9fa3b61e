package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderlease/go/bench/report"
	"github.com/leaderlease/go/bench/wire"
)

// LockPlan is what the locks of clientv3/concurrency are measured with.
type LockPlan struct {
	Timing
	Servers []Server
	Clients []int
}

// Locks plans the measurement of locks.
func (s *Suite) Locks(p LockPlan) {
	servers := slices.Clone(p.Servers)
	for i := range servers {
		s.add("locks: start "+servers[i].Name, startTime, func(ctx context.Context) error { return s.start(ctx, &servers[i]) })
	}
	for round := range p.Rounds {
		for i := range servers {
			srv := &servers[i]
			s.lockArm(&p, srv, "sequential", 1, false, round)
			for _, n := range p.Clients {
				s.lockArm(&p, srv, "parallel", n, false, round)
				s.lockArm(&p, srv, "contended", n, true, round)
			}
		}
	}
	s.stop("locks")
}

func (s *Suite) lockArm(p *LockPlan, srv *Server, kind string, clients int, shared bool, round int) {
	name := fmt.Sprintf("locks: round %d, %s, %s, %d clients", round+1, srv.Name, kind, clients)
	s.add(name, p.Duration+100*time.Millisecond, func(ctx context.Context) (err error) {
		l, err := wire.NewLockers(ctx, srv.Endpoints, clients, shared)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		res := l.Measure(ctx, p.Duration)
		where := report.Measurement{
			Layer: report.Locks, Arm: srv.Name, Round: round, Elapsed: res.Elapsed, Sample: 1,
			Group: report.Group{{Key: "kind", Value: kind}, {Key: "clients", Value: fmt.Sprint(clients)}, {Key: "members", Value: fmt.Sprint(len(srv.Endpoints))}},
		}
		where.Stale = res.Overlaps
		s.Report.AddTally(where, "acquire", res.Acquire)
		where.Stale = 0
		s.Report.AddTally(where, "release", res.Release)
		return nil
	})
}
