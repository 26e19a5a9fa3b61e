package suite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leaderlease/go/internal/bench/failover"
	"github.com/leaderlease/go/internal/bench/report"
)

// FailoverPlan is which deaths of leaders are measured of which servers, side by side.
type FailoverPlan struct {
	Rounds  int
	Deaths  []failover.Death
	Servers []Server
	// Members is the size of the clusters, but where a death has one of its own.
	Members int
	TLS     bool
	// Cannot says why members cannot have what deaths need. Those are left out, and noted.
	Cannot map[failover.Needs]error
}

// mortal is a server with a cluster of which leaders die.
type mortal struct {
	Server
	*failover.Cluster
	size int
}

// Failover plans each death in each round, of one server after the other. What has the same
// needs is done to the same clusters.
func (s *Suite) Failover(p FailoverPlan) {
	plain := 0
	for _, d := range p.Deaths {
		if d.Needs == "" && d.Members == 0 {
			plain++
		}
	}
	for i, d := range p.Deaths {
		switch err := p.Cannot[d.Needs]; {
		case err != nil:
			s.Report.Note("LEFT OUT: %s: members cannot have %s: %s.", d.Name, d.Needs, report.WithoutPaths(err.Error()))
		case d.Needs != "" || d.Members != 0:
			s.die(&p, p.Deaths[i:i+1])
		case plain > 0:
			s.die(&p, p.Deaths[i:i+plain]) // All has them first
			plain = 0
		}
	}
}

// die plans deaths of the same clusters.
func (s *Suite) die(p *FailoverPlan, all []failover.Death) {
	var servers []*mortal
	for i, srv := range p.Servers {
		c := &mortal{Server: srv, size: p.Members}
		if all[0].Members > 0 {
			c.size = all[0].Members
		}
		servers = append(servers, c)
		s.add(fmt.Sprintf("failover: start %d members of %s for %s", c.size, c.Name, all[0].Name), startTime, func(ctx context.Context) error {
			return s.startMortal(ctx, c, failover.Options{Program: *c.Program, Size: c.size, TLS: p.TLS, Needs: all[0].Needs, Number: i})
		})
	}
	for round := range p.Rounds {
		for _, d := range all {
			for _, i := range rotated(len(servers), round) {
				c := servers[i]
				s.add(fmt.Sprintf("failover: round %d, %s, %s", round+1, d.Name, c.Name), d.Takes(), func(ctx context.Context) error {
					return s.death(ctx, c, &d, round)
				})
			}
		}
	}
	s.stop("failover")
}

func (s *Suite) startMortal(ctx context.Context, c *mortal, opts failover.Options) (err error) {
	if opts.Dir, err = os.MkdirTemp("", "leasebench"); err != nil {
		return err
	}
	s.later(func() error { return os.RemoveAll(opts.Dir) })
	if c.Cluster, err = failover.Start(ctx, opts); err != nil {
		return fmt.Errorf("start %d members of %s: %w", opts.Size, c.Name, err)
	}
	s.later(c.Close)
	return nil
}

func (s *Suite) death(ctx context.Context, c *mortal, d *failover.Death, round int) error {
	all, err := c.Measure(ctx, d)
	failed := ""
	if errors.Is(err, failover.ErrAway) {
		failed, err = report.WithoutPaths(err.Error()), nil
	}
	for _, a := range all {
		row := fmt.Sprintf("%s, %d members", a.What, c.size)
		f := report.Figure{Part: report.Failover, Row: row, Unit: report.Nanoseconds, Arm: c.Name, Round: round, Failed: failed}
		for kind, what := range []string{"reads", "writes"} {
			f.What, f.Value, f.Errors = what, float64(a.Time[kind]), a.Told[kind]
			s.Report.Figures = append(s.Report.Figures, f)
		}
	}
	return err
}
