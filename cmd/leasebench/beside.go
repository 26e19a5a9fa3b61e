package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/internal/bench/suite"
)

// besideFlags say which servers are measured side by side, and of which sizes.
type besideFlags struct {
	serverFlags
	members []int
}

func (f *besideFlags) register(cmd *cobra.Command, members []int) {
	f.serverFlags.register(cmd)
	cmd.Flags().IntSliceVar(&f.members, "members", members, "sizes of the clusters that are started; a --peer is measured beside clusters of its own size")
}

// maxMembers is the greatest cluster that makes sense on one machine.
const maxMembers = 9

func (f *besideFlags) plan(t suite.Timing) (suite.Beside, error) {
	b := suite.Beside{Timing: t, Members: f.members}
	if err := inRange("members", f.members, maxMembers); err != nil {
		return b, err
	}
	var err error
	b.Servers, err = f.servers(true)
	return b, err
}

// inRange refuses numbers below 1 and above most.
func inRange(what string, all []int, most int) error {
	for _, n := range all {
		if n < 1 || n > most {
			return fmt.Errorf("%s %d must be in [1, %d]", what, n, most)
		}
	}
	return nil
}
