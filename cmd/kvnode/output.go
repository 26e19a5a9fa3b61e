package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server/status"
	"github.com/leaderlease/go/leaderlease/detector"
)

// printable escapes control and invisible characters, since members choose their
// names freely and a terminal would interpret them.
func printable(s string) string {
	return escape(s, func(r rune) string {
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	})
}

// printableJSON does the same in JSON, where such characters occur in strings only.
func printableJSON(s string) string {
	return escape(s, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// escape replaces unprintable characters, except line breaks and tabs.
func escape(s string, other func(rune) string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
	if !strings.ContainsFunc(s, hidden) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			b.WriteString(other(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cellBytes is the maximum size of a table cell.
const cellBytes = 1 << 10

// oneLine keeps a text from breaking the table.
func oneLine(s string) string {
	if len(s) > cellBytes {
		s = strings.ToValidUTF8(s[:cellBytes], "") + "…"
	}
	return printable(strings.Join(strings.Fields(s), " "))
}

// print writes answers as one line of JSON or as a table.
func (a *asker) print(w io.Writer, answers []answer) error {
	if a.output == "json" {
		data, err := json.Marshal(answers)
		if err == nil {
			_, err = io.WriteString(w, printableJSON(string(data))+"\n")
		}
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(t, "ENDPOINT\tNAME\tROLE\tTERM\tLEASE\tREMAINING\tMARGIN\tPROMISED\tREADS\tAPPLIED/COMMIT\tNOTE")
	for _, x := range answers {
		if err != nil {
			return err
		}
		row := x.row()
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		_, err = fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	err = errors.Join(err, t.Flush())
	for _, x := range answers {
		if line := failOver(x.Status); line != "" && err == nil {
			_, err = fmt.Fprintln(w, line)
		}
	}
	return err
}

// failOver describes how the present leader was elected, from its own report.
func failOver(r *status.Report) string {
	if r == nil || r.Role != "leader" || r.Suspicions.Last == nil {
		return ""
	}
	last := r.Suspicions.Last
	text := "last fail-over: " + oneLine(last.Cause)
	if last.Cause != detector.Transfer.String() && last.Cause != detector.Resignation.String() {
		text += fmt.Sprintf(" %.0f ms", last.DetectedMS)
	}
	if last.PromiseMS > 0 {
		text += fmt.Sprintf(", promise %.0f ms", last.PromiseMS)
	}
	return text + fmt.Sprintf(", election %.0f ms, first commit %.0f ms", last.ElectionMS, last.CommitMS)
}

// row returns the cells of one line of the table.
func (x *answer) row() []string {
	r := x.Status
	if r == nil {
		return []string{x.Endpoint, "-", "-", "-", "-", "-", "-", "-", "-", "-", x.Error}
	}
	return []string{
		x.Endpoint, node.Shown(r.Name), r.Role, fmt.Sprint(r.Term),
		r.Lease.State, millis(r.Lease.RemainingMS), millis(r.Lease.MarginMS), promised(r),
		reads(r.Reads), fmt.Sprintf("%d/%d", r.Applied, r.Commit), note(r),
	}
}

// millis formats a duration, and an expired one as a dash.
func millis(ms float64) string {
	if ms <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0fms", ms)
}

// promised returns how long the member must not vote: until its promise expires, or until its
// restart hold does, if that is later.
func promised(r *status.Report) string {
	if hold := r.Promise.RestartHoldMS; hold > r.Promise.RemainingMS {
		return millis(hold) + " (restart)"
	}
	return millis(r.Promise.RemainingMS)
}

// reads lists counts by path.
func reads(counts map[string]uint64) string {
	var parts []string
	for _, path := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s=%d", path, counts[path]))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, " ")
}

// note lists the conditions that need an operator's attention.
func note(r *status.Report) string {
	var parts []string
	add := func(condition bool, text string) {
		if condition {
			parts = append(parts, oneLine(text))
		}
	}
	add(r.Error != "", r.Error)
	add(r.Lease.Error != "", r.Lease.Error)
	add(r.Leader == "", "no leader")
	add(len(r.Awaited) > 0, "waits to be let in by "+strings.Join(r.Awaited, ", "))
	add(r.Replaying, "still applies its log since its start, so that stale reads wait")
	add(len(r.ClusterVersionKeptBy) > 0, fmt.Sprintf("cluster version %d is kept by %s", r.ClusterVersion, strings.Join(r.ClusterVersionKeptBy, ", ")))
	for _, m := range r.Alarms {
		add(true, "alarm "+m.Type+" of "+cmp.Or(m.Name, m.Member, "no member: no majority agrees"))
	}
	add(r.DiskFull, "disk full")
	add(r.CheckpointError != "", "no checkpoint can be made: "+r.CheckpointError)
	for _, p := range r.Peers {
		add(!p.Connected, "not connected to "+nameOf(&p))
		add(p.ClockSuspect, "clock of "+nameOf(&p)+" suspect")
	}
	return strings.Join(parts, "; ")
}

func nameOf(p *status.Peer) string {
	if p.Name != "" {
		return node.Shown(p.Name)
	}
	return p.ID
}

// helpWidth is the number of columns of help texts.
const helpWidth = 80

// reflowAll wraps the long texts of cmd and its subcommands to helpWidth columns.
func reflowAll(cmd *cobra.Command) {
	cmd.Long = reflow(cmd.Long)
	for _, c := range cmd.Commands() {
		reflowAll(c)
	}
}

// reflow wraps paragraphs to helpWidth columns. Indented lines are not changed.
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
