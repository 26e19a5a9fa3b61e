package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Table is a part of the report as rows of text.
type Table struct {
	Title string
	// Note says how to read it.
	Note   string
	Header []string
	Rows   [][]string
}

// layerNotes say what a layer measures, and what it leaves out.
var layerNotes = map[string][2]string{
	Check:   {"Layer a: the check alone", "One goroutine, or as many as stated; nothing is read. ns for one operation."},
	Cluster: {"Layer b: the whole linearizable read, in process", "Three kvnode members in one process, logs on disk, an injected round trip between peers. No gRPC."},
	Wire:    {"Layer c: over the wire", "etcd's client against server processes on this machine."},
	Compare: {"Layer c, side by side", "The same client and the same load against each server, in alternation, on this machine."},
}

// Layers are all that have measurements, from the inside out.
var Layers = []string{Check, Cluster, Wire, Compare}

// Tables returns the whole report but its environment.
func (r *Report) Tables() []Table {
	var tables []Table
	add := func(t Table) {
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	add(r.stalenessTable())
	for _, layer := range Layers {
		add(r.layerTable(layer))
	}
	add(r.figureTable("", "At size", sizeNote))
	add(r.figureTable(Failover, "Fail-over: how long reads and writes were away", failoverNote))
	add(r.samplesTable())
	add(r.errorTable())
	add(r.auditTable())
	return tables
}

func (r *Report) layerTable(layer string) Table {
	t := Table{
		Title: layerNotes[layer][0],
		Note: layerNotes[layer][1] + " Median over rounds [least, greatest]; × is against the first arm in the same round, above 1 is better. " +
			"– is not measured, or too few operations for that percentile.",
		Header: []string{"conditions", "arm", "per second", "×", "p50", "p50 ×", "p99", "p99.9", "p99.99", "failed", "stale", "paths"},
	}
	if layer == Check {
		t.Header = []string{"conditions", "arm", "ns/op", "×"}
	}
	for _, c := range r.Comparisons(layer) {
		for i := range c.Rows {
			row := &c.Rows[i]
			where := c.Group.String() + " " + c.Op
			if layer == Check {
				t.Rows = append(t.Rows, []string{where, row.Arm, spread(row.NsPerOp, duration), spread(row.Ratio, ratio)})
				continue
			}
			t.Rows = append(t.Rows, []string{
				where, row.Arm, spread(row.PerSecond, rate), spread(row.Ratio, ratio),
				duration(row.Quantiles[0.5].Median), ratio(row.P50Ratio.Median), duration(row.Quantiles[0.99].Median),
				duration(row.Quantiles[0.999].Median), duration(row.Quantiles[0.9999].Median),
				strconv.FormatInt(row.Failed, 10), strconv.FormatInt(row.Stale, 10), paths(row),
			})
		}
	}
	return t
}

// paths prints the share of each path, from the most taken on.
func paths(row *Row) string {
	names := slices.SortedFunc(maps.Keys(row.Paths), func(a, b string) int {
		return cmp.Or(cmp.Compare(row.Paths[b], row.Paths[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		if name != "unknown" {
			parts = append(parts, fmt.Sprintf("%s %.3g%%", name, 100*float64(row.Paths[name])/float64(row.Done)))
		}
	}
	return strings.Join(parts, ", ")
}

func (r *Report) stalenessTable() Table {
	t := Table{
		Title: "Staleness: a leader is cut off, and clients still reach it",
		Note: "Virtual time, real RawNodes: the others elect and write, a client reads from the old leader every 10 ms. " +
			"A read is stale if a write was acknowledged before it began and it does not show it.",
		Header: []string{"arm", "trials", "with stale reads", "stale reads", "reads served", "mean stale window"},
	}
	for _, s := range r.Staleness {
		t.Rows = append(t.Rows, []string{
			s.Arm, strconv.Itoa(s.Trials), fmt.Sprintf("%.0f%%", 100*float64(s.StaleRuns)/float64(max(s.Trials, 1))),
			strconv.Itoa(s.StaleReads), strconv.Itoa(s.Reads), duration(float64(s.Window)),
		})
	}
	return t
}

// errorTable says what the failures said.
func (r *Report) errorTable() Table {
	t := Table{
		Title:  "Failures",
		Note:   "What the operations said that are counted above as failed. Texts are cut.",
		Header: []string{"layer", "conditions", "arm", "times", "text"},
	}
	for _, layer := range Layers {
		for _, c := range r.Comparisons(layer) {
			for i := range c.Rows {
				row := &c.Rows[i]
				for _, text := range slices.Sorted(maps.Keys(row.Errors)) {
					t.Rows = append(t.Rows, []string{layer, c.Group.String() + " " + c.Op, row.Arm, strconv.FormatInt(row.Errors[text], 10), text})
				}
			}
		}
	}
	t.Rows = append(t.Rows, r.failedFigures()...)
	return t
}

func (r *Report) auditTable() Table {
	t := Table{
		Title:  "Audit: arms that are wrong on purpose",
		Note:   "The version floor that checks every read of this report must catch each of them.",
		Header: []string{"arm", "reads", "stale", "verdict"},
	}
	for _, a := range r.Audits {
		verdict := "caught"
		if !a.Caught {
			verdict = "NOT CAUGHT: do not believe this report"
		}
		t.Rows = append(t.Rows, []string{a.Arm, strconv.FormatInt(a.Reads, 10), strconv.FormatInt(a.Stale, 10), verdict})
	}
	return t
}

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	out := &strings.Builder{}
	for _, l := range r.Environment.Lines() {
		fmt.Fprintf(out, "%-13s %s\n", l[0]+":", l[1])
	}
	for _, t := range r.Tables() {
		fmt.Fprintf(out, "\n%s\n%s\n\n", t.Title, t.Note)
		tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tab, strings.Join(t.Header, "\t")) //nolint:errcheck // a Builder takes everything
		for _, row := range t.Rows {
			fmt.Fprintln(tab, strings.Join(row, "\t")) //nolint:errcheck // a Builder takes everything
		}
		_ = tab.Flush() // as above
	}
	for _, n := range r.Notes {
		fmt.Fprintf(out, "\nNote: %s\n", n)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
