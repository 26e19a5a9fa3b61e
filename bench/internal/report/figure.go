package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Figure is one thing that was measured of a server. Less is better.
type Figure struct {
	// Part is Failover, or empty for servers at size.
	Part string
	// Row is what the server holds or does, What is what was measured.
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
