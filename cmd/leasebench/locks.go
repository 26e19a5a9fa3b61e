package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench/suite"
)

func newLocks(c *common) *cobra.Command {
	srv := &serverFlags{}
	var clients []int
	var size int
	cmd := &cobra.Command{
		Use: "locks", Short: "acquire and release of locks (clientv3/concurrency): sequential, parallel, contended", Args: cobra.NoArgs,
		Long: "Locks need an endpoint with TTL leases. One that has none is refused with its own answer.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := c.timing(cmd)
			if err != nil {
				return err
			}
			if err := checkClients(clients); err != nil {
				return err
			}
			if size < 1 || size > 9 {
				return fmt.Errorf("members %d must be in [1, 9]", size)
			}
			servers, err := srv.servers(len(srv.peers)+len(srv.starts) == 0)
			if err != nil {
				return err
			}
			for i := range servers {
				servers[i].Size = size
			}
			s := suite.New()
			s.Locks(suite.LockPlan{Timing: t, Servers: servers, Clients: clients})
			return c.finish(cmd, s)
		},
	}
	srv.register(cmd)
	cmd.Flags().IntSliceVar(&clients, "clients", []int{4, 16}, "numbers of clients of the parallel and the contended arm")
	cmd.Flags().IntVar(&size, "members", 3, "number of members of servers that are started")
	return cmd
}
