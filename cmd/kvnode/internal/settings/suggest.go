package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearestWord returns the known word that is most like given, or none: it accepts one edit for
// every four letters, and at least one.
func nearestWord(given string, known []string) string {
	best, least := "", max(1, len(given)/4)+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(strings.ToLower(given), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// Hint returns a question with that word for the end of a message, or nothing. The verb
// %s of form is the word.
func Hint(given string, known []string, form string) string {
	word := nearestWord(given, known)
	if word == "" {
		return ""
	}
	return "; did you mean " + fmt.Sprintf(form, word) + "?"
}

// NoArgs is cobra.NoArgs with a suggestion of a command.
func NoArgs(cmd *cobra.Command, args []string) error {
	err := cobra.NoArgs(cmd, args)
	if err == nil {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("%w%s", err, Hint(args[0], known, "%s"))
}

// SuggestFlags makes cmd and the commands below it suggest a flag for an unknown one.
func SuggestFlags(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		unknown, ok := errors.AsType[*pflag.NotExistError](err)
		if !ok {
			return err
		}
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		return fmt.Errorf("%w%s", err, Hint(unknown.GetSpecifiedName(), known, "--%s"))
	})
}

// distance returns the number of letters to change, add, remove, or swap with the next
// one, to make a into b.
func distance(a, b string) int {
	var before []int // two rows ago
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			changed := 1
			if a[i-1] == b[j-1] {
				changed = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+changed)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
