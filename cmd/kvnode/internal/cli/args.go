package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// argsOf returns the check that a command has from low to high arguments, or any number from
// low on if high is negative. An error names the argument as the command's usage does.
func argsOf(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			name := strings.Fields(cmd.Use)[1+len(args)]
			return fmt.Errorf("%s: missing %s (usage: %s)", cmd.CommandPath(), strings.TrimSuffix(name, "..."), usageLine(cmd))
		case high >= 0 && len(args) > high:
			return fmt.Errorf("%s: %d arguments, want %d at most: %q is one too many (usage: %s)", cmd.CommandPath(), len(args), high, args[high], usageLine(cmd))
		}
		return nil
	}
}

// usageLine is the command with its arguments.
func usageLine(cmd *cobra.Command) string { return cmd.Parent().CommandPath() + " " + cmd.Use }
