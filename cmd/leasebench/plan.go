package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leaderlease/go/bench"
)

// defaultTiming and quickTiming are how long arms are measured.
func defaultTiming() bench.Timing {
	return bench.Timing{Rounds: 5, Warmup: 200 * time.Millisecond, Duration: time.Second}
}

func quickTiming() bench.Timing {
	return bench.Timing{Rounds: 1, Warmup: 50 * time.Millisecond, Duration: 250 * time.Millisecond}
}

// sizeTiming is how long servers with much data rest and are measured.
func sizeTiming(quick bool) bench.Timing {
	if quick {
		return bench.Timing{Rounds: 1, Warmup: 2 * time.Second, Duration: 3 * time.Second}
	}
	return bench.Timing{Rounds: 1, Warmup: 15 * time.Second, Duration: 15 * time.Second}
}

// planTable shows the parts of all, and about how long they take.
func planTable() string {
	plans := []struct {
		title  string
		timing bench.Timing
		starts []string
		quick  bool
	}{
		{"--quick", quickTiming(), nil, true},
		{"(no flag)", defaultTiming(), nil, false},
		{"--start etcd=…", defaultTiming(), []string{"etcd=etcd"}, false},
	}
	header, total := []string{"  part"}, []string{"  total"}
	var rows []string
	cells := make(map[string][]string)
	for _, p := range plans {
		s := bench.New()
		if err := planAll(context.Background(), s, p.timing, &serverFlags{starts: p.starts}, p.quick); err != nil {
			return fmt.Sprintf("The plan cannot be made: %v\n", err)
		}
		header = append(header, p.title)
		total = append(total, about(s.Takes()))
		for _, part := range s.Parts() {
			if cells[part.Name] == nil {
				rows = append(rows, part.Name)
				cells[part.Name] = make([]string, len(plans))
			}
			cells[part.Name][len(header)-2] = about(part.Takes)
		}
	}
	out := &strings.Builder{}
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, strings.Join(header, "\t")) //nolint:errcheck // a Builder takes everything
	for _, name := range rows {
		fmt.Fprintln(tab, "  "+name+"\t"+strings.Join(cells[name], "\t")) //nolint:errcheck // as above
	}
	fmt.Fprintln(tab, strings.Join(total, "\t")) //nolint:errcheck // as above
	_ = tab.Flush()                              // as above
	return strings.TrimRight(out.String(), "\n")
}

// about rounds an estimate.
func about(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min %02.0f s", d.Truncate(time.Minute).Minutes(), (d % time.Minute).Seconds())
}
