package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/internal/nearest"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

func newTrace(sys *System) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Judge what leader leases have decided",
		Args:  nearest.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "judge FILE...",
		Short: "Hold the traces of a cluster's members against the rules",
		Long: `Judge reads what members have written with --lease-trace, a file a member, and says up to where each
process was judged. The exit code is 0 if the rules allow every event in the files, and 1 if they do
not, or if something is missing in between, behind which nothing can be judged.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error { return judge(sys, files) },
	})
	return cmd
}

func judge(sys *System, files []string) error {
	all, err := leasetrace.ReadFiles(files...)
	if err != nil {
		return fmt.Errorf("kvnode trace: %w", err)
	}
	v := leasetrace.Judge(all)
	if _, err := fmt.Fprintln(sys.Stdout, v); err != nil {
		return err
	}
	if err := v.Err(); err != nil {
		return fmt.Errorf("kvnode trace: %w", err)
	}
	return nil
}
