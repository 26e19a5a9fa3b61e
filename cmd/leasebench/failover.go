package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
)

// failoverFlags say how leaders die, and in which clusters.
type failoverFlags struct {
	serverFlags
	deaths  []string
	members int
	tls     bool
	// supervise adds kvnode with --supervise beside kvnode without it.
	supervise bool
}

const (
	failoverRounds      = 20
	quickFailoverRounds = 2
)

func newFailover(c *common) *cobra.Command {
	f := &failoverFlags{}
	cmd := &cobra.Command{
		Use: "failover", Short: "how long reads and writes get no answer when the leader dies, in each way, side by side", Args: cobra.NoArgs,
		Long: failoverLong, Example: "  leasebench failover --quick --start etcd=./etcd\n  leasebench failover --death kill,two --members 5 --tls",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.members != 3 && f.members != 5 {
				return fmt.Errorf("members %d must be 3 or 5", f.members)
			}
			p := bench.FailoverPlan{Members: f.members, TLS: f.tls}
			if done, err := p.SetDeaths(cmd.Context(), f.deaths); done || err != nil {
				return err
			}
			normal, quick := defaultTiming(), quickTiming()
			normal.Rounds, quick.Rounds = failoverRounds, quickFailoverRounds
			return c.runTimed(cmd, normal, quick, func(s *bench.Suite, t bench.Timing) error {
				p.Rounds = t.Rounds
				return f.add(s, p)
			})
		},
	}
	f.registerStart(cmd)
	cmd.Flags().StringSliceVar(&f.deaths, "death", bench.Deaths(), "how leaders die")
	cmd.Flags().IntVar(&f.members, "members", 3, "size of the clusters, 3 or 5; two of five are always of 5")
	cmd.Flags().BoolVar(&f.supervise, "supervise", false, "measure kvnode with --supervise beside kvnode without it; Linux only")
	cmd.Flags().BoolVar(&f.tls, "tls", false, "TLS for clients and between members, with certificates that they make themselves")
	return cmd
}

func (f *failoverFlags) add(s *bench.Suite, p bench.FailoverPlan) (err error) {
	if p.Servers, err = f.servers(true); err != nil {
		return err
	}
	if f.supervise {
		supervised := *p.Servers[0].Program
		supervised.Name, supervised.Args = supervised.Name+"-supervised", append(slices.Clone(supervised.Args), "--supervise")
		supervised.Supervised = true
		p.Servers = slices.Insert(p.Servers, 1, bench.Server{Name: supervised.Name, Program: &supervised})
	}
	if len(f.starts) == 0 {
		p.Servers = append(p.Servers, localEtcd(s)...)
	}
	s.Failover(p)
	return nil
}
