// Package report holds what a benchmark run has measured, and writes it as tables for a
// terminal.
package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
)

// Report is everything a run has measured, raw.
type Report struct {
	Environment Environment
	Figures     []Figure
	Staleness   []Staleness
	Audits      []Audit
	// Notes are what a reader must know, such as an arm that could not run.
	Notes []string
}

// The parts of a report with figures. Arms are compared within one part and row.
const (
	Cluster  = "cluster"
	Compare  = "compare"
	Size     = "size"
	Failover = "failover"
)

// Figure is one quantity of an arm, measured in one round.
type Figure struct {
	Part string
	// Row is the conditions of a load, or the state or action of a server.
	Row string
	// What is the measured quantity.
	What  string
	Unit  Unit
	Arm   string
	Round int
	Value float64
	// Missing says why there is no Value.
	Missing string
	// Counts are of the operations meanwhile.
	Counts load.Counts
}

// Unit says how values are printed.
type Unit int

// The units.
const (
	Nanoseconds Unit = iota
	Bytes
	PerSecond
)

// Note adds what a reader must know, once.
func (r *Report) Note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// throughput is the quantity that has the Counts of a load.
const throughput = "per second"

// quantiles of the latencies of a load. A quantile is left out if too few operations
// support it.
var quantiles = []struct {
	name string
	at   float64
}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}}

// AddLoad adds what a load has measured, for each kind of operation that there was to do.
// The figure where has part, row, arm and round.
func (r *Report) AddLoad(where Figure, res *load.Result) {
	for _, kind := range []load.Kind{load.Read, load.Write} {
		if !res.Asked[kind] {
			continue
		}
		f, t := where, res.Of(kind)
		f.Row += " " + kind.String()
		f.What, f.Unit, f.Value, f.Counts = throughput, PerSecond, float64(t.Done)/res.Elapsed.Seconds(), t.Counts
		r.Figures = append(r.Figures, f)
		f.Unit, f.Counts = Nanoseconds, load.Counts{}
		for _, q := range quantiles {
			if t.Supports(q.at) {
				f.What, f.Value = q.name, float64(t.Quantile(q.at))
				r.Figures = append(r.Figures, f)
			}
		}
	}
}

// Staleness counts the reads of leaders that were cut off, in virtual time.
type Staleness struct {
	Arm        string
	Trials     int
	StaleRuns  int
	Reads      int
	StaleReads int
	Window     time.Duration
}

// Audit is one arm that is wrong on purpose: how many reads there were, and how
// many of them the audit found to be stale.
type Audit struct {
	Arm    string
	Reads  int64
	Stale  int64
	Caught bool
}

// ErrAudit says that the figures of a run must not be believed, or show a bug.
var ErrAudit = errors.New("report: the audit failed")

// mayBeStale reports whether reads of an arm are allowed to be stale, and it says
// so by its name.
func mayBeStale(arm string) bool {
	return arm == "serializable" || strings.HasSuffix(arm, "-serializable")
}

// Verdict fails if an arm that promises linearizable reads served a stale one, if
// the audit did not catch an arm that is wrong on purpose, or if leaderlease served
// a stale read to a partitioned client.
func (r *Report) Verdict() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i := range r.Figures {
		f := &r.Figures[i]
		if mayBeStale(f.Arm) {
			continue
		}
		if f.Counts.Stale > 0 {
			bad("%s %s: arm %s: %d stale of %d", f.Part, f.Row, f.Arm, f.Counts.Stale, f.Counts.Done)
		}
		if n := f.Counts.Paths[load.PathSerializable]; n > 0 {
			bad("%s %s: arm %s had %d reads served by path serializable", f.Part, f.Row, f.Arm, n)
		}
	}
	for _, a := range r.Audits {
		if !a.Caught {
			bad("arm %s is wrong on purpose, and none of its %d reads was found to be stale", a.Arm, a.Reads)
		}
	}
	for _, s := range r.Staleness {
		if s.StaleReads > 0 && s.Arm == "leaderlease" {
			bad("leaderlease served %d stale reads of %d under partition", s.StaleReads, s.Reads)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrAudit, errors.Join(errs...))
	}
	return nil
}

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	out := &strings.Builder{} // takes everything, so errors of writing to it are ignored
	for _, l := range r.Environment.Lines() {
		fmt.Fprintf(out, "%-13s %s\n", l[0]+":", l[1])
	}
	for _, t := range r.Tables() {
		fmt.Fprintf(out, "\n%s\n%s\n\n", t.Title, t.Note)
		tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, row := range slices.Insert(t.Rows, 0, t.Header) {
			_, _ = fmt.Fprintln(tab, strings.Join(row, "\t"))
		}
		_ = tab.Flush()
	}
	for _, n := range r.Notes {
		fmt.Fprintf(out, "\nNote: %s\n", n)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Save writes the report to a file of that name in a directory, which it makes, and returns
// the file's path.
func (r *Report) Save(dir, name string) (file string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("save the report: %w", err)
	}
	var text strings.Builder
	_ = r.WriteText(&text) // a Builder takes everything
	file = filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return "", fmt.Errorf("save the report: %w", err)
	}
	return file, nil
}
