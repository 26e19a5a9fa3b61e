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
	Cluster: {"The whole linearizable read, in process", "Three kvnode members in one process, logs on disk, an injected round trip between peers. No gRPC."},
	Compare: {"Over the wire", "etcd's client and the same load against each server, in alternation, on this machine."},
}

// Layers are all that have measurements, from the inside out.
var Layers = []string{Cluster, Compare}

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
	for _, c := range r.Comparisons(layer) {
		for i := range c.Rows {
			row := &c.Rows[i]
			where := c.Group.String() + " " + c.Op
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

// Figure is one thing that was measured of a server. Less is better.
type Figure struct {
	// Part is Failover, or empty for servers at size.
	Part string
	// Row is the state or action of the server, What is the measured quantity.
	Row  string
	What string
	// Unit is of Bytes and Nanoseconds.
	Unit  string
	Arm   string
	Round int
	Value float64
	// Each is what Value is the mean of: one for each member.
	Each []float64
	// Failed says why there is no Value.
	Failed string
	// Errors are what operations said that failed meanwhile.
	Errors map[string]int64
}

// The units, as benchstat has them.
const (
	Bytes       = "B"
	Nanoseconds = "ns"
)

// sizeNote says how to read the table.
const sizeNote = "Less is better. RSS is of all that a member has in memory, the mean over members; a stall is of a client that asks every 10 ms, from when a request was due. " +
	"÷ is the first server against that one, below 1 is better for the first, the median of the ratios in each round. Ratios of single runs between 0.8 and 1.3 mean nothing."

// failoverNote says how to read the table of Failover.
const failoverNote = "The longest time without an answer, from the death on, to a client that begins a read and a write every 5 ms, each at the next member, " +
	"whatever became of those before. Median over rounds [least, greatest]; ÷ is the first server against that one, below 1 is better for the first."

// figureTable has a line for what was measured and a column for each server.
func (r *Report) figureTable(part, title, note string) Table {
	var arms []string
	type line struct{ row, what, unit string }
	var lines []line
	at := make(map[string]int) // where the first line of a row is
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Part != part {
			continue
		}
		if !slices.Contains(arms, f.Arm) {
			arms = append(arms, f.Arm)
		}
		if l := (line{f.Row, f.What, f.Unit}); !slices.Contains(lines, l) {
			lines = append(lines, l)
			if _, ok := at[l.row]; !ok {
				at[l.row] = len(at)
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return at[a.row] - at[b.row] })
	t := Table{Title: title, Note: note, Header: []string{"row", "measured", ""}}
	if len(arms) == 0 {
		return t
	}
	t.Header[2] = arms[0]
	for _, arm := range arms[1:] {
		t.Header = append(t.Header, arm, "÷")
	}
	for _, l := range lines {
		cells := []string{l.row, l.what}
		for i, arm := range arms {
			cells = append(cells, r.figureCell(l.row, l.what, arm, l.unit))
			if i > 0 {
				cells = append(cells, ratio(r.figureRatio(l.row, l.what, arms[0], arm)))
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// samplesTable has what was measured of Failover in each round.
func (r *Report) samplesTable() Table {
	t := Table{Title: "Fail-over: all samples", Note: "In ms, in the order of the rounds.", Header: []string{"row", "measured", "server", "samples"}}
	at := make(map[[3]string]int)
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Part != Failover {
			continue
		}
		key := [3]string{f.Row, f.What, f.Arm}
		if _, ok := at[key]; !ok {
			at[key] = len(t.Rows)
			t.Rows = append(t.Rows, append(key[:], ""))
		}
		text := "failed"
		if f.Failed == "" {
			text = fmt.Sprintf("%.1f", f.Value/1e6)
		}
		cells := t.Rows[at[key]]
		cells[3] = strings.TrimSpace(cells[3] + " " + text)
	}
	return t
}

// figuresOf returns those of one line and server by round.
func (r *Report) figuresOf(row, what, arm string) map[int]*Figure {
	found := make(map[int]*Figure)
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Row == row && f.What == what && f.Arm == arm {
			found[f.Round] = f
		}
	}
	return found
}

func (r *Report) figureCell(row, what, arm, unit string) string {
	var values []float64
	for _, f := range r.figuresOf(row, what, arm) {
		if f.Failed != "" {
			return "failed"
		}
		values = append(values, f.Value)
	}
	show := duration
	if unit == Bytes {
		show = bytesText
	}
	if len(values) == 0 {
		return "–"
	}
	return spread(spreadOf(values), show)
}

// figureRatio is base against arm, the median over rounds, 0 if there is none.
func (r *Report) figureRatio(row, what, base, arm string) float64 {
	bases := r.figuresOf(row, what, base)
	var ratios []float64
	for round, f := range r.figuresOf(row, what, arm) {
		if b := bases[round]; b != nil && f.Value > 0 && b.Failed+f.Failed == "" {
			ratios = append(ratios, b.Value/f.Value)
		}
	}
	return spreadOf(ratios).Median
}

// failedFigures are rows of the table of failures.
func (r *Report) failedFigures() (rows [][]string) {
	times := make(map[[4]string]int64)
	for i := range r.Figures {
		f := &r.Figures[i]
		where := [4]string{cmp.Or(f.Part, Size), f.Row, f.Arm}
		if f.Failed != "" {
			rows = append(rows, append(where[:3:3], "1", f.Failed))
		}
		where[1] += " " + f.What
		for text, n := range f.Errors {
			where[3] = text
			times[where] += n
		}
	}
	for _, where := range slices.SortedFunc(maps.Keys(times), func(a, b [4]string) int { return slices.Compare(a[:], b[:]) }) {
		rows = append(rows, append(where[:3:3], strconv.FormatInt(times[where], 10), where[3]))
	}
	return rows
}

// figureLines are those for benchstat.
func (r *Report) figureLines(out *strings.Builder) {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Failed == "" {
			name := "Size"
			if f.Part == Failover {
				name = "Failover"
			}
			fmt.Fprintf(out, "Benchmark%s/row=%s/what=%s/arm=%s-%d\t1\t%.6g %s\n",
				name, benchName(f.Row), benchName(f.What), benchName(f.Arm), r.Environment.MaxProcs, f.Value, f.Unit)
		}
	}
}

// duration prints nanoseconds with three digits.
func duration(ns float64) string {
	if ns == 0 {
		return "–"
	}
	return scaled(ns, "ns", "µs", "ms", "s")
}

// rate prints a number per second with three digits.
func rate(n float64) string { return scaled(n, "", "k", "M") }

// bytesText prints bytes with three digits.
func bytesText(n float64) string { return scaled(n, " B", " kB", " MB", " GB") }

// scaled prints n with three digits in the largest unit that fits. Each unit is 1000
// times the one before.
func scaled(n float64, units ...string) string {
	for n >= 999.5 && len(units) > 1 {
		n, units = n/1000, units[1:]
	}
	return fmt.Sprintf("%.3g%s", n, units[0])
}

func ratio(x float64) string {
	switch {
	case x == 0:
		return "–"
	case x >= 99.5:
		return fmt.Sprintf("%.0f×", x)
	default:
		return fmt.Sprintf("%.3g×", x)
	}
}

// spread prints a median with its range.
func spread(s Spread, show func(float64) string) string {
	if s.Min == s.Max {
		return show(s.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", show(s.Median), show(s.Min), show(s.Max))
}
