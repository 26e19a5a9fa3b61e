package cli

import (
	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/internal/nearest"
)

func newSnapshot(sys *System) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Look at a saved snapshot, or begin a new cluster with one",
		Long: `Snapshot works on the files that etcdctl snapshot save writes when it talks to a kvnode. Those of
etcd's own servers hold something else and are refused.`,
		Args: nearest.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.AddCommand(newSnapshotStatus(sys), newSnapshotRestore(sys))
	return cmd
}

// completeSnapshot has the shell offer files.
func completeSnapshot(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
