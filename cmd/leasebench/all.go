package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench/report"
	"github.com/leaderlease/go/bench/suite"
)

// defaultOut is where results are kept in the repository.
const defaultOut = "bench/results"

func newAll(c *common) *cobra.Command {
	srv := &serverFlags{}
	cmd := &cobra.Command{
		Use: "all", Short: "every part, one report; with --quick in about two minutes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("out") {
				c.out = defaultOut
			}
			s := suite.New()
			if err := c.planAll(cmd, s, srv); err != nil {
				return err
			}
			return c.finish(cmd, s)
		},
	}
	srv.register(cmd)
	return cmd
}

// planAll plans everything with the defaults of the parts.
func (c *common) planAll(cmd *cobra.Command, s *suite.Suite, srv *serverFlags) error {
	t, err := c.timing(cmd)
	if err != nil {
		return err
	}
	servers, err := srv.servers(true)
	if err != nil {
		return err
	}
	trials := 500
	fail := failoverFlags{faults: suite.Faults, tick: 100 * time.Millisecond, before: time.Second, after: 5 * time.Second, rate: 1000, processes: true}
	if c.quick {
		trials = 100
		fail.faults, fail.tick = []string{"kill", "cut"}, 40*time.Millisecond
		fail.before, fail.after = 500*time.Millisecond, 1500*time.Millisecond
	}
	s.Stale(trials, 1)
	check := t
	check.Duration = min(t.Duration, 300*time.Millisecond)
	s.Check(check)

	cluster := clusterFlags{rtts: defaultRTTs(), clients: []int{1, 16, 64, 256, 1024}, keys: 10_000, rate: 2000}
	p, err := cluster.plan(t, c.quick)
	if err != nil {
		return err
	}
	s.Cluster(p)

	f, err := fail.plan(min(t.Rounds, 3))
	if err != nil {
		return err
	}
	f.Programs = append(f.Programs, programs(servers)...)
	if err := s.Failover(f); err != nil {
		return err
	}
	return c.planServers(s, t, servers)
}

// planServers plans layer c: kvnode alone, and side by side if there is another.
func (c *common) planServers(s *suite.Suite, t suite.Timing, servers []suite.Server) error {
	own := slices.IndexFunc(servers, func(s suite.Server) bool { return s.Name == kvnodeName })
	f := wireFlags{clients: []int{1, 16, 64, 256, 1024}, keys: 1000, rate: 1000}
	p, err := f.plan(report.Wire, t, servers[own:own+1], c.quick)
	if err != nil {
		return err
	}
	s.Wire(p)
	if len(servers) < 2 {
		s.Report.Notes = append(s.Report.Notes, "No other server was compared with: see leasebench compare.")
		return nil
	}
	f.clients = []int{1, 16, 64, 256}
	if p, err = f.plan(report.Compare, t, servers, c.quick); err != nil {
		return err
	}
	s.Wire(p)
	return nil
}

func newReport(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "report FILE.json...", Short: "print saved reports again, as one, and with --out write them", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			all, err := report.Open(files[0])
			if err != nil {
				return err
			}
			for _, file := range files[1:] {
				other, err := report.Open(file)
				if err != nil {
					return err
				}
				all.Merge(other)
			}
			if err := all.WriteText(c.streams.out); err != nil {
				return err
			}
			if c.out != "" {
				name := c.name
				if name == "" {
					name = all.Environment.Date.Format("2006-01-02-150405") + "-leasebench"
				}
				if _, err := all.Save(c.out, name); err != nil {
					return fmt.Errorf("report: %w", err)
				}
			}
			return all.Verdict()
		},
	}
}
