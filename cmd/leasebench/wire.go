package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
)

// wireFlags are the conditions of layer c.
type wireFlags struct{ loadFlags }

func (f *wireFlags) plan(compare bool, t bench.Timing, servers []bench.Server, quick bool) (bench.WirePlan, error) {
	p := bench.WirePlan{Timing: t, Compare: compare, Keys: f.keys, Servers: servers}
	clients, works, err := f.works(quick)
	if err != nil {
		return p, err
	}
	p.Works = slices.Concat(works, []bench.Work{{Clients: 64, WritePercent: 100}}, mixed(64, f.rate))
	if compare {
		p.Arms = bench.CompareArms(servers)
		// In a closed loop a faster server gets more requests. Here all get the same.
		for _, writes := range []int{0, 100} {
			p.Works = append(p.Works, bench.Work{Clients: 64, WritePercent: writes, Rate: f.rate})
		}
		for _, n := range clients {
			if n != 64 {
				p.Works = append(p.Works, bench.Work{Clients: n, WritePercent: 100}, bench.Work{Clients: n, WritePercent: 10})
			}
		}
		return p, nil
	}
	p.Arms = bench.WireArms(servers[0].Name)
	if servers[0].Name != kvnodeName {
		p.Arms = bench.CompareArms(servers)
	}
	return p, nil
}

func newWire(c *common) *cobra.Command {
	f, srv := &wireFlags{}, &serverFlags{}
	cmd := &cobra.Command{
		Use: "wire", Short: "layer c: etcd's client against server processes", Args: cobra.NoArgs,
		Long: "Measure one server over the wire: kvnode, three members of which are started from this binary, or --peer.\nA peer named kvnode is asked in kvnode's own read modes, any other one as etcd.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			servers, err := srv.servers(len(srv.peers)+len(srv.starts) == 0)
			if err != nil {
				return err
			}
			if len(servers) != 1 {
				return fmt.Errorf("wire measures one server, not %d: use compare", len(servers))
			}
			return c.runWire(cmd, f, false, servers)
		},
	}
	f.register(cmd, wireDefaults)
	srv.register(cmd)
	return cmd
}

func (c *common) runWire(cmd *cobra.Command, f *wireFlags, compare bool, servers []bench.Server) error {
	return c.runPart(cmd, func(s *bench.Suite, t bench.Timing) error {
		p, err := f.plan(compare, t, servers, c.quick && !cmd.Flags().Changed("clients"))
		if err == nil {
			s.Wire(p)
		}
		return err
	})
}

func newCompare(c *common) *cobra.Command {
	f, srv := &wireFlags{}, &serverFlags{}
	cmd := &cobra.Command{
		Use: "compare", Short: "layer c, side by side with a running etcd, in alternation", Args: cobra.NoArgs,
		Example: "  leasebench compare --peer etcd=127.0.0.1:2379,127.0.0.1:22379,127.0.0.1:32379\n  leasebench compare --start etcd=./etcd",
		RunE: func(cmd *cobra.Command, _ []string) error {
			servers, err := srv.servers(true)
			if err != nil {
				return err
			}
			if len(servers) < 2 {
				return errors.New("compare with what? give --peer NAME=ENDPOINTS or --start NAME=BINARY")
			}
			return c.runWire(cmd, f, true, servers)
		},
	}
	f.register(cmd, compareDefaults)
	srv.register(cmd)
	return cmd
}
