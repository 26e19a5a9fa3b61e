// Package report holds what a benchmark run has measured, and writes it as tables
// for a terminal and as text for benchstat.
//
// Layers are never mixed up: a comparison has arms of one layer, one group of
// conditions and one operation, which differ in one thing.
package report

import (
	"fmt"
	"slices"
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
	Check   = "check"
	Cluster = "cluster"
	Wire    = "wire"
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

// Quantiles are those that are kept, as far as there are operations enough.
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
