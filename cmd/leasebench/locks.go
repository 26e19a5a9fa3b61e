package main

import (
	"github.com/spf13/cobra"

	"github.com/leaderlease/go/internal/bench/suite"
)

// lockFlags are the conditions of locks.
type lockFlags struct {
	besideFlags
	clients []int
}

func newLocks(c *common) *cobra.Command {
	f := &lockFlags{}
	cmd := c.part(&cobra.Command{
		Use: "locks", Short: "acquire and release of locks, side by side",
		Long:    locksLong,
		Example: "  leasebench locks --start etcd=./etcd\n  leasebench locks --peer etcd=127.0.0.1:2379,127.0.0.1:22379,127.0.0.1:32379 --members 3",
	}, "clients", f.add)
	f.register(cmd, []int{1, 3})
	cmd.Flags().IntSliceVar(&f.clients, "clients", lockClients(), "numbers of clients of the parallel and the contended part")
	return cmd
}

func lockClients() []int { return []int{4, 16} }

// add plans it.
func (f *lockFlags) add(s *suite.Suite, t suite.Timing, quick bool) error {
	b, err := f.plan(t)
	if err != nil {
		return err
	}
	clients := f.clients
	if quick {
		clients = []int{4}
	}
	if err := checkClients(clients); err != nil {
		return err
	}
	s.Locks(suite.LockPlan{Beside: b, Clients: clients})
	return nil
}
