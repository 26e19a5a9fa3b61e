// Package report holds what a benchmark run has measured, and writes it as tables
// for a terminal and as text for benchstat.
//
// Layers are never mixed up: a comparison has arms of one layer, one group of
// conditions and one operation, which differ in one thing.
package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
)

// Report is everything a run has measured, raw.
type Report struct {
	Environment  Environment
	Measurements []Measurement
	Staleness    []Staleness
	Audits       []Audit
	Figures      []Figure
	// Notes are what a reader must know, such as an arm that could not run.
	Notes []string
}

// The layers, from the inside out.
const (
	Cluster = "cluster"
	Compare = "compare"
	// Size is about Figures.
	Size = "size"
	// Failover is about Figures, too.
	Failover = "failover"
)

// Note adds what a reader must know, once.
func (r *Report) Note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// Label is a condition, such as clients=64.
type Label struct {
	Key   string
	Value string
}

// Group is the conditions that all arms of a comparison have in common.
type Group []Label

// String returns the conditions as key=value, separated by slashes.
func (g Group) String() string {
	parts := make([]string, len(g))
	for i, l := range g {
		parts[i] = l.Key + "=" + l.Value
	}
	return strings.Join(parts, "/")
}

// Value returns the value of a key, empty if it is not there.
func (g Group) Value(key string) string {
	i := slices.IndexFunc(g, func(l Label) bool { return l.Key == key })
	if i < 0 {
		return ""
	}
	return g[i].Value
}

// Measurement is one arm in one round.
type Measurement struct {
	Layer string
	Group Group
	Arm   string
	Op    string
	Round int

	Done   int64
	Failed int64
	// Stale counts reads below the version floor.
	Stale   int64
	Elapsed time.Duration
	// Sample is n if the latency of one operation in n was taken.
	Sample  int
	Latency []Latency
	Paths   map[string]int64
	Errors  map[string]int64
}

// Latency is one quantile.
type Latency struct {
	Quantile float64
	Value    time.Duration
}

// Quantiles are the quantiles of a report. A quantile is left out if too few operations support it.
var Quantiles = []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 1}

// PerSecond returns the throughput.
func (m *Measurement) PerSecond() float64 { return float64(m.Done) / m.Elapsed.Seconds() }

// NsPerOp returns the time for one operation, all clients together.
func (m *Measurement) NsPerOp() float64 {
	if m.Done == 0 {
		return 0
	}
	return float64(m.Elapsed.Nanoseconds()) / float64(m.Done)
}

// At returns a quantile, 0 if it was not measured.
func (m *Measurement) At(q float64) time.Duration {
	for _, l := range m.Latency {
		if l.Quantile == q {
			return l.Value
		}
	}
	return 0
}

// AddLoad adds what a load has measured, one Measurement for each kind of
// operation that there was to do. where has layer, group, arm and round.
func (r *Report) AddLoad(where Measurement, res *load.Result) {
	where.Elapsed, where.Sample = res.Elapsed, res.Sample
	for _, kind := range []load.Kind{load.Read, load.Write} {
		if !res.Asked[kind] {
			continue
		}
		t := res.Of(kind)
		m := where
		m.Stale = t.Stale
		if kind == load.Read {
			m.Paths = make(map[string]int64)
			for p, n := range t.Paths {
				if n > 0 {
					m.Paths[load.Path(p).String()] = n
				}
			}
		}
		r.AddTally(m, kind.String(), t)
	}
}

// AddTally adds a Measurement; where has all that t and op do not.
func (r *Report) AddTally(where Measurement, op string, t *load.Tally) {
	where.Op, where.Done, where.Failed, where.Errors = op, t.Done, t.Failed, t.Errors
	for _, q := range Quantiles {
		if q == 1 && t.Latency.TotalCount() > 0 || t.Supports(q) {
			where.Latency = append(where.Latency, Latency{q, t.Quantile(q)})
		}
	}
	r.Measurements = append(r.Measurements, where)
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

// Row is an arm of a comparison over all rounds.
type Row struct {
	Arm       string
	Rounds    int
	PerSecond Spread
	NsPerOp   Spread
	// Quantiles are by Quantiles; a zero Spread was not measured in each round.
	Quantiles map[float64]Spread
	// Ratio is this arm's throughput divided by that of the first arm, in the
	// same round; P50Ratio is the first arm's median latency divided by this one's.
	// Above 1 means better than the first arm.
	Ratio, P50Ratio Spread

	Done, Failed, Stale int64
	Paths, Errors       map[string]int64
}

// Comparison is all arms under one group of conditions.
type Comparison struct {
	Layer string
	Group Group
	Op    string
	Rows  []Row
}

// Base returns the arm that the others are compared with: the first one.
func (c *Comparison) Base() string { return c.Rows[0].Arm }

// Row returns an arm, nil if it is not there.
func (c *Comparison) Row(arm string) *Row {
	for i := range c.Rows {
		if c.Rows[i].Arm == arm {
			return &c.Rows[i]
		}
	}
	return nil
}

// Comparisons returns those of a layer, in the order in which they were measured.
func (r *Report) Comparisons(layer string) []Comparison {
	var keys []string
	cells := make(map[string][]*Measurement)
	for i := range r.Measurements {
		m := &r.Measurements[i]
		if m.Layer != layer {
			continue
		}
		key := m.Group.String() + "/op=" + m.Op
		if cells[key] == nil {
			keys = append(keys, key)
		}
		cells[key] = append(cells[key], m)
	}
	var all []Comparison
	for _, key := range keys {
		all = append(all, compare(cells[key]))
	}
	return all
}

func compare(ms []*Measurement) Comparison {
	c := Comparison{Layer: ms[0].Layer, Group: ms[0].Group, Op: ms[0].Op}
	var arms []string
	byArm := make(map[string][]*Measurement)
	for _, m := range ms {
		if byArm[m.Arm] == nil {
			arms = append(arms, m.Arm)
		}
		byArm[m.Arm] = append(byArm[m.Arm], m)
	}
	for _, arm := range arms {
		c.Rows = append(c.Rows, row(byArm[arm], byArm[arms[0]]))
	}
	return c
}

func row(ms, base []*Measurement) Row {
	r := Row{Arm: ms[0].Arm, Rounds: len(ms), Quantiles: make(map[float64]Spread), Paths: make(map[string]int64), Errors: make(map[string]int64)}
	// What a round did not measure is left out, but getting nothing done is a
	// throughput of 0.
	all := func(value func(*Measurement) float64) []float64 {
		values := make([]float64, len(ms))
		for i, m := range ms {
			values[i] = value(m)
		}
		return values
	}
	over := func(value func(*Measurement) float64) Spread {
		return spreadOf(slices.DeleteFunc(all(value), func(v float64) bool { return v == 0 }))
	}
	r.PerSecond = spreadOf(all((*Measurement).PerSecond))
	r.NsPerOp = over((*Measurement).NsPerOp)
	for _, q := range Quantiles {
		r.Quantiles[q] = over(func(m *Measurement) float64 { return float64(m.At(q)) })
	}
	inRound := func(ratio func(m, base *Measurement) float64) Spread {
		return over(func(m *Measurement) float64 {
			i := slices.IndexFunc(base, func(b *Measurement) bool { return b.Round == m.Round })
			if i < 0 {
				return 0
			}
			return ratio(m, base[i])
		})
	}
	r.Ratio = inRound(func(m, b *Measurement) float64 { return quotient(m.PerSecond(), b.PerSecond()) })
	r.P50Ratio = inRound(func(m, b *Measurement) float64 { return quotient(float64(b.At(0.5)), float64(m.At(0.5))) })
	for _, m := range ms {
		r.Done, r.Failed, r.Stale = r.Done+m.Done, r.Failed+m.Failed, r.Stale+m.Stale
		for p, n := range m.Paths {
			r.Paths[p] += n
		}
		for text, n := range m.Errors {
			r.Errors[text] += n
		}
	}
	return r
}

func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func itoa(n int) string { return strconv.Itoa(n) }

// ErrAudit says that the figures of a run must not be believed, or show a bug.
var ErrAudit = errors.New("report: the audit failed")

// MayBeStale reports whether reads of an arm are allowed to be stale, and it says
// so by its name.
func MayBeStale(arm string) bool {
	return arm == "serializable" || strings.HasSuffix(arm, "-serializable")
}

// Verdict fails if an arm that promises linearizable reads served a stale one, if
// the audit did not catch an arm that is wrong on purpose, or if leaderlease served
// a stale read to a partitioned client.
func (r *Report) Verdict() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i := range r.Measurements {
		m := &r.Measurements[i]
		if m.Stale > 0 && !MayBeStale(m.Arm) {
			bad("%s %s: arm %s: %s: %d stale of %d", m.Layer, m.Group, m.Arm, m.Op, m.Stale, m.Done)
		}
		if n := m.Paths[load.PathSerializable.String()]; n > 0 && !MayBeStale(m.Arm) {
			bad("%s %s: arm %s had %d reads served by path serializable", m.Layer, m.Group, m.Arm, n)
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
