package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
)

// defaultOut is a directory that git ignores. The text of a run to keep goes to
// bench/results.
const defaultOut = "bench/out"

func newAll(c *common) *cobra.Command {
	srv := &serverFlags{}
	cmd := &cobra.Command{
		Use: "all", Short: "every part, one report; with --quick in about a minute", Args: cobra.NoArgs,
		Example: "  leasebench all --quick\n  leasebench all --start etcd=./etcd",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("out") {
				c.out = defaultOut
			}
			s := bench.New()
			t, err := c.timing(cmd, defaultTiming(), quickTiming())
			if err != nil {
				return err
			}
			if err := planAll(cmd.Context(), s, t, srv, c.quick); err != nil {
				return err
			}
			return c.finish(cmd, s)
		},
	}
	srv.register(cmd)
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Long = allLong + planTable()
		cmd.Parent().HelpFunc()(cmd, args)
	})
	return cmd
}

// planAll plans everything with the defaults of the parts.
func planAll(ctx context.Context, s *bench.Suite, t bench.Timing, srv *serverFlags, quick bool) error {
	servers, err := srv.servers(true)
	if err != nil {
		return err
	}
	trials := 500
	died := bench.FailoverPlan{Rounds: t.Rounds, Members: 3}
	if _, err := died.SetDeaths(ctx, []string{"kill", "panic", "term"}); err != nil {
		return err
	}
	if quick {
		trials = 100
		died.Rounds = quickFailoverRounds
	}
	s.Stale(trials, 1)
	check := t
	check.Duration = min(t.Duration, 300*time.Millisecond)
	s.Check(check)

	cluster := clusterFlags{clusterDefaults, defaultRTTs()}
	if err := cluster.add(s, t, quick); err != nil {
		return err
	}

	for _, srv := range servers {
		if srv.Program != nil {
			died.Servers = append(died.Servers, srv)
		}
	}
	s.Failover(died)
	return planServers(s, t, servers, quick)
}

// planServers plans layer c: kvnode alone, and then side by side with other servers.
func planServers(s *bench.Suite, t bench.Timing, servers []bench.Server, quick bool) error {
	own := slices.IndexFunc(servers, func(s bench.Server) bool { return s.Name == kvnodeName })
	f := wireFlags{wireDefaults}
	p, err := f.plan(false, t, servers[own:own+1], quick)
	if err != nil {
		return err
	}
	s.Wire(p)
	if len(servers) < 2 {
		s.Report.Note("No other server was compared with: see leasebench compare, or give all a --start.")
		return nil
	}
	f = wireFlags{compareDefaults}
	if p, err = f.plan(true, t, servers, quick); err != nil {
		return err
	}
	s.Wire(p)
	return nil
}
