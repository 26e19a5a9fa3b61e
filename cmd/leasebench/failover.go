package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/internal/bench/failover"
	"github.com/leaderlease/go/internal/bench/suite"
)

// failoverFlags are how leaders die, and of which clusters.
type failoverFlags struct {
	serverFlags
	deaths  []string
	members int
	tls     bool
	// guardian adds kvnode with one, beside kvnode without.
	guardian bool
}

const (
	failoverRounds      = 20
	quickFailoverRounds = 2
)

func newFailover(c *common) *cobra.Command {
	f := &failoverFlags{}
	cmd := &cobra.Command{
		Use: "failover", Short: "how long reads and writes are away when the leader dies, in each way, side by side", Args: cobra.NoArgs,
		Long: failoverLong, Example: "  leasebench failover --quick --start etcd=./etcd\n  leasebench failover --death kill,two --members 5 --tls",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := failover.Named(f.deaths)
			if err != nil {
				return err
			}
			if f.members != 3 && f.members != 5 {
				return fmt.Errorf("members %d must be 3 or 5", f.members)
			}
			cannot, done, err := f.private(cmd, all)
			if done || err != nil {
				return err
			}
			return c.runPart(cmd, func(s *suite.Suite, t suite.Timing) error {
				p := suite.FailoverPlan{Rounds: t.Rounds, Deaths: all, Members: f.members, TLS: f.tls, Cannot: cannot}
				if !cmd.Flags().Changed("rounds") {
					p.Rounds = failoverRounds
					if c.quick {
						p.Rounds = quickFailoverRounds
					}
				}
				return f.add(s, p)
			})
		},
	}
	f.registerStart(cmd)
	cmd.Flags().StringSliceVar(&f.deaths, "death", failover.Shorts(), "how leaders die")
	cmd.Flags().IntVar(&f.members, "members", 3, "size of the clusters, 3 or 5; two of five are always of 5")
	cmd.Flags().BoolVar(&f.guardian, "guardian", false, "kvnode with --guardian, too, beside kvnode without; Linux only")
	cmd.Flags().BoolVar(&f.tls, "tls", false, "TLS for clients and between members, with certificates that they make themselves")
	return cmd
}

// private has all be done by a process of its own where deaths need that, and says which of
// their needs cannot be had.
func (f *failoverFlags) private(cmd *cobra.Command, all []failover.Death) (cannot map[failover.Needs]error, done bool, err error) {
	cannot = make(map[failover.Needs]error)
	if !slices.ContainsFunc(all, func(d failover.Death) bool { return d.Needs != "" }) {
		return cannot, false, nil
	}
	done, not := failover.Private(cmd.Context())
	if done || not != nil && !errors.Is(not, failover.ErrNotPrivate) {
		return nil, done, not
	}
	for _, d := range all {
		if d.Needs == "" {
			continue
		}
		if cannot[d.Needs] = not; not == nil {
			cannot[d.Needs] = failover.Possible(d.Needs)
		}
	}
	return cannot, false, nil
}

func (f *failoverFlags) add(s *suite.Suite, p suite.FailoverPlan) (err error) {
	if p.Servers, err = f.servers(true); err != nil {
		return err
	}
	if f.guardian {
		guarded := *p.Servers[0].Program
		guarded.Name, guarded.Args, guarded.Guarded = guarded.Name+"-guardian", append(slices.Clone(guarded.Args), "--guardian"), true
		p.Servers = slices.Insert(p.Servers, 1, suite.Server{Name: guarded.Name, Program: &guarded})
	}
	if len(f.starts) == 0 {
		p.Servers = append(p.Servers, localEtcd(s)...)
	}
	s.Failover(p)
	return nil
}
