package report

import (
	"slices"
	"strconv"
)

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
