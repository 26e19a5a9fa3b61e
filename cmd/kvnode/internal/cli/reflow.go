package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is the number of columns of help texts.
const helpWidth = 80

// reflowAll sets the long texts of cmd and its commands in lines of helpWidth.
func reflowAll(cmd *cobra.Command) {
	cmd.Long = reflow(cmd.Long)
	for _, c := range cmd.Commands() {
		reflowAll(c)
	}
}

// reflow sets the paragraphs of a text in lines of helpWidth. Lines that are indented stay.
func reflow(text string) string {
	var out []string
	line := ""
	end := func() {
		if line != "" {
			out, line = append(out, line), ""
		}
	}
	for given := range strings.SplitSeq(text, "\n") {
		if given == "" || given[0] == ' ' || given[0] == '\t' {
			end()
			out = append(out, given)
			continue
		}
		for word := range strings.FieldsSeq(given) {
			switch {
			case line == "":
				line = word
			case len(line)+1+len(word) > helpWidth:
				end()
				line = word
			default:
				line += " " + word
			}
		}
	}
	end()
	return strings.Join(out, "\n")
}
