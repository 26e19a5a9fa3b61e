package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// WriteBenchstat writes every measurement as a line that benchstat reads, one
// per round.
func (r *Report) WriteBenchstat(w io.Writer) error {
	out := &strings.Builder{}
	for _, l := range r.Environment.Lines() {
		fmt.Fprintf(out, "%s: %s\n", l[0], l[1])
	}
	for i := range r.Measurements {
		m := &r.Measurements[i]
		fmt.Fprintf(out, "BenchmarkLease/layer=%s", m.Layer)
		for _, l := range m.Group {
			fmt.Fprintf(out, "/%s=%s", benchName(l.Key), benchName(l.Value))
		}
		fmt.Fprintf(out, "/op=%s/arm=%s-%d\t%d\t%.4g ns/op\t%.4g ops/s", benchName(m.Op), benchName(m.Arm), r.Environment.MaxProcs, max(m.Done, 1), m.NsPerOp(), m.PerSecond())
		for _, l := range m.Latency {
			fmt.Fprintf(out, "\t%d %s-ns", l.Value.Nanoseconds(), percentile(l.Quantile))
		}
		fmt.Fprintf(out, "\t%d failed\t%d stale\n", m.Failed, m.Stale)
	}
	r.figureLines(out)
	_, err := io.WriteString(w, out.String())
	return err
}

// benchName keeps a value from being taken for more of the name.
func benchName(s string) string {
	return strings.NewReplacer(" ", "_", "/", "_", "\t", "_", "=", "_").Replace(s)
}

// percentile names a quantile: p50, p99.9, max.
func percentile(q float64) string {
	if q == 1 {
		return "max"
	}
	return fmt.Sprintf("p%.6g", 100*q)
}

// Save writes the report into a directory as name.txt and name.bench.txt, and
// returns the files' names.
func (r *Report) Save(dir, name string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("save the report: %w", err)
	}
	for _, f := range []struct {
		suffix string
		write  func(io.Writer) error
	}{
		{".txt", r.WriteText}, {".bench.txt", r.WriteBenchstat},
	} {
		file := filepath.Join(dir, name+f.suffix)
		if err := save(file, f.write); err != nil {
			return files, fmt.Errorf("save %s: %w", file, err)
		}
		files = append(files, file)
	}
	return files, nil
}

func save(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
