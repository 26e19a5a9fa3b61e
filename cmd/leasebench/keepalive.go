package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/internal/bench/suite"
)

// keepAliveFlags are the conditions of renewing TTL leases.
type keepAliveFlags struct {
	besideFlags
	leases  int
	streams []int
}

func newKeepAlive(c *common) *cobra.Command {
	f := &keepAliveFlags{}
	cmd := c.part(&cobra.Command{
		Use: "keepalive", Short: "keep-alives of TTL leases per second, side by side",
		Long: keepAliveLong, Example: "  leasebench keepalive --start etcd=./etcd",
	}, "streams", f.add)
	f.register(cmd, []int{1, 3})
	cmd.Flags().IntVar(&f.leases, "leases", leaseCount, "number of TTL leases")
	cmd.Flags().IntSliceVar(&f.streams, "streams", renewStreams(), "numbers of streams, each on its own connection")
	return cmd
}

func renewStreams() []int { return []int{1, 16, 64} }

const (
	leaseCount = 1000
	maxLeases  = 100_000
)

// add plans it.
func (f *keepAliveFlags) add(s *suite.Suite, t suite.Timing, quick bool) error {
	b, err := f.plan(t)
	if err != nil {
		return err
	}
	leases, streams := f.leases, f.streams
	if quick {
		leases, streams = min(leases, 200), []int{16}
	}
	if err := inRange("streams", streams, maxStreams); err != nil {
		return err
	}
	if leases < 1 || leases > maxLeases {
		return fmt.Errorf("leases %d must be in [1, %d]", leases, maxLeases)
	}
	s.KeepAlive(suite.KeepAlivePlan{Beside: b, TTLLeases: leases, Streams: streams})
	return nil
}
