package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// argsUpTo returns the check that a command has one argument at least and high at most, or any
// number if high is negative. An error names the argument as the command's usage does.
func argsUpTo(high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			name := strings.Fields(cmd.Use)[1]
			return fmt.Errorf("%s: missing %s (usage: %s)", cmd.CommandPath(), strings.TrimSuffix(name, "..."), usageLine(cmd))
		case high >= 0 && len(args) > high:
			return fmt.Errorf("%s: %d arguments, want %d at most: %q is one too many (usage: %s)", cmd.CommandPath(), len(args), high, args[high], usageLine(cmd))
		}
		return nil
	}
}

// usageLine is the command with its arguments.
func usageLine(cmd *cobra.Command) string { return cmd.Parent().CommandPath() + " " + cmd.Use }
