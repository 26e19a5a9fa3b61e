package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
)

// compareFlags are the servers that compare measures, and their loads.
type compareFlags struct {
	loadFlags
	serverFlags
}

func newCompare(c *common) *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use: "compare", Short: "reads and writes through etcd's client: kvnode, and side by side with it etcd",
		Example: "  leasebench compare --start etcd=./etcd\n  leasebench compare --peer etcd=127.0.0.1:2379,127.0.0.1:22379,127.0.0.1:32379",
	}
	f.loadFlags.register(cmd, compareDefaults)
	f.serverFlags.register(cmd)
	return c.part(cmd, "clients", f.add)
}

// add plans the part compare.
func (f *compareFlags) add(s *bench.Suite, t bench.Timing, quick bool) error {
	servers, err := f.servers()
	if err != nil {
		return err
	}
	clients, works, err := f.works(quick)
	if err != nil {
		return err
	}
	works = slices.Concat(works, mixed(64, f.rate))
	// In a closed loop a faster server gets more requests. Here all get the same.
	for _, writes := range []int{0, 100} {
		works = append(works, bench.Work{Clients: 64, WritePercent: writes, Rate: f.rate})
	}
	for _, n := range clients {
		works = append(works, bench.Work{Clients: n, WritePercent: 100})
	}
	s.Compare(bench.ComparePlan{Timing: t, Keys: f.keys, Works: works, Servers: servers})
	return nil
}
