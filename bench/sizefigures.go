package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/bench/internal/size"
)

// probed adds the latencies of a probe.
func (s *Suite) probed(c *sized, row string, p *size.Probed) {
	for _, kind := range []struct {
		name string
		*load.Tally
	}{{"put", p.Put}, {"get", p.Get}} {
		s.figure(c, report.Figure{Row: row, What: "longest stall of a " + kind.name, Unit: report.Nanoseconds, Value: float64(kind.Latency.Max())})
		if kind.Supports(0.99) {
			s.figure(c, report.Figure{Row: row, What: kind.name + " p99", Unit: report.Nanoseconds, Value: float64(kind.Quantile(0.99))})
		}
		for text, n := range kind.Errors {
			s.Report.Note("size, %s, %s: %d of the probing client's requests failed: %s.", c.Name, row, n, report.WithoutPaths(text))
		}
	}
}

// figure adds one to the report.
func (s *Suite) figure(c *sized, f report.Figure) {
	f.Arm, f.Round = c.Name, c.round
	s.Report.Figures = append(s.Report.Figures, f)
}

func (s *Suite) restedMemory(ctx context.Context, c *sized, row string) error {
	if err := rest(ctx, c); err != nil {
		return err
	}
	return s.memory(c, row)
}

// memory adds the memory of all members, by kind.
func (s *Suite) memory(c *sized, row string) error {
	all, err := memories(c)
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		name string
		of   func(size.Memory) int64
	}{
		{"RSS of a member", size.Memory.RSS},
		{"of it anonymous", func(m size.Memory) int64 { return m.Anonymous }},
		{"of it of files", func(m size.Memory) int64 { return m.File }},
	} {
		f := report.Figure{Row: row, What: kind.name, Unit: report.Bytes}
		for _, m := range all {
			f.Each = append(f.Each, float64(kind.of(m)))
			f.Value += float64(kind.of(m)) / float64(len(all))
		}
		s.figure(c, f)
	}
	most := slices.MaxFunc(all, func(a, b size.Memory) int { return int(a.RSS() - b.RSS()) })
	s.figure(c, report.Figure{Row: row, What: "RSS of the largest member", Unit: report.Bytes, Value: float64(most.RSS())})
	return nil
}

func memories(c *sized) (all []size.Memory, err error) {
	for _, m := range c.cluster.Members() {
		memory, err := size.MemoryOf(m.PID())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		all = append(all, memory)
	}
	return all, nil
}

// processors returns the processor time of all members while fn runs.
func processors(c *sized, fn func() error) (time.Duration, error) {
	before, err := cpuOf(c)
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := cpuOf(c)
	return after - before, err
}

func cpuOf(c *sized) (sum time.Duration, err error) {
	for _, m := range c.cluster.Members() {
		took, err := size.CPUOf(m.PID())
		if err != nil {
			return 0, fmt.Errorf("%s: %w", c.Name, err)
		}
		sum += took
	}
	return sum, nil
}

// rest lets the members settle.
func rest(ctx context.Context, c *sized) error { return load.Sleep(ctx, c.plan.Warmup) }

// count prints a number with commas between thousands.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}
