package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/bench/internal/servers"
)

// FailoverPlan says of which servers leaders die, and how. SetDeaths completes it.
type FailoverPlan struct {
	Rounds  int
	Servers []Server
	// Members is the size of the clusters, except for deaths that need another one.
	Members int
	TLS     bool

	deaths []servers.Death
	// cannot has the reason for each need of the deaths that this process cannot meet.
	cannot map[servers.Needs]error
}

// Deaths returns the names of all deaths.
func Deaths() []string { return servers.Shorts() }

// SetDeaths sets the deaths by their names. Some need networks or disks of their own:
// then SetDeaths runs this program again in namespaces of its own, and returns done once
// that has ended.
func (p *FailoverPlan) SetDeaths(ctx context.Context, names []string) (done bool, err error) {
	if p.deaths, err = servers.Named(names); err != nil {
		return false, err
	}
	p.cannot, done, err = servers.Prepare(ctx, p.deaths)
	return done, err
}

// failoverServer is a server, and the cluster of it in which leaders die.
type failoverServer struct {
	Server
	*servers.Cluster
	size int
}

// Failover plans each death in each round. Deaths with the same needs use the same
// clusters.
func (s *Suite) Failover(p FailoverPlan) {
	plain := 0
	for _, d := range p.deaths {
		if d.Needs == "" && d.Members == 0 {
			plain++
		}
	}
	for i, d := range p.deaths {
		switch err := p.cannot[d.Needs]; {
		case err != nil:
			s.Report.Note("LEFT OUT: %s: members cannot have %s: %s.", d.Name, d.Needs, report.WithoutPaths(err.Error()))
		case d.Needs != "" || d.Members != 0:
			s.failover(&p, p.deaths[i:i+1])
		case plain > 0:
			s.failover(&p, p.deaths[i:i+plain]) // servers.All has them first
			plain = 0
		}
	}
}

// failover plans deaths in the same clusters.
func (s *Suite) failover(p *FailoverPlan, all []servers.Death) {
	var clusters []*failoverServer
	for i, srv := range p.Servers {
		c := &failoverServer{Server: srv, size: p.Members}
		if all[0].Members > 0 {
			c.size = all[0].Members
		}
		clusters = append(clusters, c)
		s.add(fmt.Sprintf("failover: start %d members of %s for %s", c.size, c.Name, all[0].Name), startTime, func(ctx context.Context) error {
			return s.startFailover(ctx, c, servers.Options{Program: *c.Program, Size: c.size, TLS: p.TLS, Needs: all[0].Needs, Number: i})
		})
	}
	for round := range p.Rounds {
		for _, d := range all {
			for _, i := range rotated(len(clusters), round) {
				c := clusters[i]
				s.add(fmt.Sprintf("failover: round %d, %s, %s", round+1, d.Name, c.Name), d.Takes(), func(ctx context.Context) error {
					return s.death(ctx, c, &d, round)
				})
			}
		}
	}
	s.stop("failover")
}

func (s *Suite) startFailover(ctx context.Context, c *failoverServer, opts servers.Options) (err error) {
	if opts.Dir, err = os.MkdirTemp("", "leasebench"); err != nil {
		return err
	}
	s.later(func() error { return os.RemoveAll(opts.Dir) })
	if c.Cluster, err = servers.Start(ctx, opts); err != nil {
		return fmt.Errorf("start %d members of %s: %w", opts.Size, c.Name, err)
	}
	s.later(c.Close)
	return nil
}

func (s *Suite) death(ctx context.Context, c *failoverServer, d *servers.Death, round int) error {
	all, err := c.Measure(ctx, d)
	failed := ""
	if errors.Is(err, servers.ErrNoAnswer) {
		failed, err = report.WithoutPaths(err.Error()), nil
	}
	for _, o := range all {
		row := fmt.Sprintf("%s, %d members", o.What, c.size)
		f := report.Figure{Part: report.Failover, Row: row, Arm: c.Name, Round: round, Missing: failed}
		for kind, what := range []string{"reads", "writes"} {
			f.What, f.Value, f.Counts.Errors = what, float64(o.Time[kind]), o.Errors[kind]
			s.Report.Figures = append(s.Report.Figures, f)
		}
	}
	return err
}
