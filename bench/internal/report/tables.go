package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/leaderlease/go/bench/internal/load"
)

// Table is a part of the report as rows of text.
type Table struct {
	Title string
	// Note says how to read it.
	Note   string
	Header []string
	Rows   [][]string
}

// The notes say how to read the tables.
const (
	clusterNote = "Three kvnode members in one process, logs on disk, an injected round trip between peers. No gRPC. " + loadNote
	compareNote = "etcd's client and the same load against each server, in alternation, on this machine. " + loadNote
	loadNote    = "Median over rounds [least, greatest]; × is against the first arm in the same round, above 1 is better. " +
		"– is not measured, or too few operations for that percentile."
	sizeNote = "Less is better. RSS is all that a member has in memory, the mean over members; a stall is of a client that asks every 10 ms, from when a request was due. " +
		"÷ is the first server against that one, below 1 is better for the first, the median of the ratios in each round. Ratios of single runs between 0.8 and 1.3 mean nothing."
	failoverNote = "The longest time without an answer, from the death on, to a client that begins a read and a write every 5 ms, each at the next member, " +
		"whatever became of those before. Median over rounds [least, greatest]; ÷ is the first server against that one, below 1 is better for the first."
)

// Tables returns the whole report but its environment.
func (r *Report) Tables() []Table {
	all := []Table{
		r.stalenessTable(),
		r.loadTable(Cluster, "The whole linearizable read, in process", clusterNote),
		r.loadTable(Compare, "Over the wire", compareNote),
		r.serverTable(Size, "At size", sizeNote),
		r.serverTable(Failover, "Fail-over: how long reads and writes were away", failoverNote),
		r.samplesTable(),
		r.errorTable(),
		r.auditTable(),
	}
	return slices.DeleteFunc(all, func(t Table) bool { return len(t.Rows) == 0 })
}

// figures are some of those of a report, in the order in which they were measured.
type figures []*Figure

func (r *Report) of(part string) (all figures) {
	for i := range r.Figures {
		if r.Figures[i].Part == part {
			all = append(all, &r.Figures[i])
		}
	}
	return all
}

func row(f *Figure) string  { return f.Row }
func what(f *Figure) string { return f.What }
func arm(f *Figure) string  { return f.Arm }

// names returns the different names that the figures have, in order.
func (all figures) names(of func(*Figure) string) (names []string) {
	for _, f := range all {
		if n := of(f); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// with returns the figures that have this name.
func (all figures) with(of func(*Figure) string, name string) (some figures) {
	for _, f := range all {
		if of(f) == name {
			some = append(some, f)
		}
	}
	return some
}

// cell prints the values of one quantity of an arm over the rounds.
func (all figures) cell(quantity, of string) string {
	var values []float64
	unit := Nanoseconds
	for _, f := range all.with(what, quantity).with(arm, of) {
		if f.Missing != "" {
			return "failed"
		}
		values, unit = append(values, f.Value), f.Unit
	}
	if len(values) == 0 {
		return "–"
	}
	return spreadOf(values).text(unit.text)
}

// ratios returns the values of one arm divided by those of another one in the same round.
func (all figures) ratios(quantity, of, by string) Spread {
	all = all.with(what, quantity)
	var ratios []float64
	for _, f := range all.with(arm, of) {
		for _, b := range all.with(arm, by) {
			if b.Round == f.Round && b.Value > 0 && f.Value > 0 && b.Missing+f.Missing == "" {
				ratios = append(ratios, f.Value/b.Value)
			}
		}
	}
	return spreadOf(ratios)
}

// loadTable has a line for each arm under each of the conditions.
func (r *Report) loadTable(part, title, note string) Table {
	t := Table{Title: title, Note: note, Header: []string{"conditions", "arm", throughput, "×"}}
	for _, q := range quantiles {
		t.Header = append(t.Header, q.name)
	}
	t.Header = append(t.Header, "failed", "stale", "paths")
	all := r.of(part)
	for _, where := range all.names(row) {
		here := all.with(row, where)
		arms := here.names(arm)
		for _, a := range arms {
			cells := []string{where, a, here.cell(throughput, a), here.ratios(throughput, a, arms[0]).text(ratio)}
			for _, q := range quantiles {
				cells = append(cells, here.cell(q.name, a))
			}
			var sum load.Counts
			for _, f := range here.with(arm, a) {
				sum.Add(&f.Counts)
			}
			t.Rows = append(t.Rows, append(cells, strconv.FormatInt(sum.Failed, 10), strconv.FormatInt(sum.Stale, 10), paths(&sum)))
		}
	}
	return t
}

// paths prints the share of each path, the most frequent first.
func paths(c *load.Counts) string {
	var all []load.Path
	for p, n := range c.Paths {
		if n > 0 && load.Path(p) != load.PathUnknown {
			all = append(all, load.Path(p))
		}
	}
	slices.SortStableFunc(all, func(a, b load.Path) int { return cmp.Compare(c.Paths[b], c.Paths[a]) })
	parts := make([]string, len(all))
	for i, p := range all {
		parts[i] = fmt.Sprintf("%s %.3g%%", p, 100*float64(c.Paths[p])/float64(c.Done))
	}
	return strings.Join(parts, ", ")
}

// serverTable has a line for each quantity and a column for each server.
func (r *Report) serverTable(part, title, note string) Table {
	t := Table{Title: title, Note: note, Header: []string{"row", "measured"}}
	all := r.of(part)
	arms := all.names(arm)
	for i, a := range arms {
		t.Header = append(t.Header, a)
		if i > 0 {
			t.Header = append(t.Header, "÷")
		}
	}
	for _, where := range all.names(row) {
		here := all.with(row, where)
		for _, quantity := range here.names(what) {
			cells := []string{where, quantity}
			for i, a := range arms {
				cells = append(cells, here.cell(quantity, a))
				if i > 0 {
					cells = append(cells, ratio(here.ratios(quantity, arms[0], a).Median))
				}
			}
			t.Rows = append(t.Rows, cells)
		}
	}
	return t
}

// samplesTable has what was measured of Failover in each round.
func (r *Report) samplesTable() Table {
	t := Table{Title: "Fail-over: all samples", Note: "In ms, in the order of the rounds.", Header: []string{"row", "measured", "server", "samples"}}
	all := r.of(Failover)
	line := func(f *Figure) string { return f.Row + "\t" + f.What + "\t" + f.Arm }
	for _, l := range all.names(line) {
		var samples []string
		for _, f := range all.with(line, l) {
			text := "failed"
			if f.Missing == "" {
				text = fmt.Sprintf("%.1f", f.Value/1e6)
			}
			samples = append(samples, text)
		}
		t.Rows = append(t.Rows, append(strings.Split(l, "\t"), strings.Join(samples, " ")))
	}
	return t
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
			strconv.Itoa(s.StaleReads), strconv.Itoa(s.Reads), Nanoseconds.text(float64(s.Window)),
		})
	}
	return t
}

// errorTable has the texts of the errors.
func (r *Report) errorTable() Table {
	t := Table{
		Title:  "Failures",
		Note:   "The errors of failed operations, and why a figure is missing. Texts are cut.",
		Header: []string{"part", "row", "arm", "times", "text"},
	}
	times := make(map[[4]string]int64)
	for i := range r.Figures {
		f := &r.Figures[i]
		where := [4]string{f.Part, f.Row, f.Arm, f.Missing}
		if f.Missing != "" {
			times[where]++
		}
		for text, n := range f.Counts.Errors {
			where[3] = text
			times[where] += n
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(times), func(a, b [4]string) int { return slices.Compare(a[:], b[:]) }) {
		t.Rows = append(t.Rows, append(at[:3:3], strconv.FormatInt(times[at], 10), at[3]))
	}
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

// Spread is a median with the least and the greatest value.
type Spread struct{ Median, Min, Max float64 }

func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	middle := values[len(values)/2]
	if len(values)%2 == 0 {
		middle = (values[len(values)/2-1] + middle) / 2
	}
	return Spread{Median: middle, Min: values[0], Max: values[len(values)-1]}
}

// text prints a median with its range.
func (s Spread) text(show func(float64) string) string {
	if s.Min == s.Max {
		return show(s.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", show(s.Median), show(s.Min), show(s.Max))
}

// text prints n with three digits.
func (u Unit) text(n float64) string {
	switch {
	case u == Bytes:
		return scaled(n, " B", " kB", " MB", " GB")
	case u == PerSecond:
		return scaled(n, "", "k", "M")
	case n == 0:
		return "–"
	default:
		return scaled(n, "ns", "µs", "ms", "s")
	}
}

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
