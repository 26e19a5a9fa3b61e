package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func sized() *Report {
	r := &Report{}
	for round, of := range []float64{1, 2, 4} {
		r.Figures = append(r.Figures,
			Figure{Row: "keys", What: "RSS", Unit: Bytes, Arm: "kvnode", Round: round, Value: of * 1e9},
			Figure{Row: "streams", What: "time", Unit: Nanoseconds, Arm: "kvnode", Round: round, Value: 5e8},
			Figure{Row: "keys", What: "RSS", Unit: Bytes, Arm: "etcd", Round: round, Value: 2e9},
			Figure{Row: "streams", What: "time", Unit: Nanoseconds, Arm: "etcd", Round: round, Failed: "stream 7: <refused>"},
			Figure{Row: "keys", What: "time", Unit: Nanoseconds, Arm: "etcd", Round: round, Value: 1e9},
		)
	}
	return r
}

func TestFiguresStandSideBySide(t *testing.T) {
	tab := table(t, sized(), "At size")
	want := [][]string{
		{"keys", "RSS", "2 GB [1 GB, 4 GB]", "2 GB", "1×"},
		{"keys", "time", "–", "1s", "–"},
		{"streams", "time", "500ms", "failed", "–"},
	}
	if !slices.EqualFunc(tab.Rows, want, slices.Equal) {
		t.Errorf("rows %q, want %q", tab.Rows, want)
	}
	if want := []string{"row", "measured", "kvnode", "etcd", "÷"}; !slices.Equal(tab.Header, want) {
		t.Errorf("header %v, want %v", tab.Header, want)
	}
	failures := table(t, sized(), "Failures").Rows
	if len(failures) != 3 || failures[0][4] != "stream 7: <refused>" {
		t.Errorf("failures %v, want why there is no figure", failures)
	}
}

func TestFiguresAreNamedForBenchstat(t *testing.T) {
	var out bytes.Buffer
	if err := sized().WriteBenchstat(&out); err != nil || !strings.Contains(out.String(), "BenchmarkSize/row=keys/what=RSS/arm=kvnode-0\t1\t4e+09 B\n") {
		t.Errorf("WriteBenchstat() = %v\n%s", err, out.String())
	}
}

// What is measured of deaths stands in tables of its own, with each sample.
func TestFailoverHasTheirSamplesBesideThem(t *testing.T) {
	r := sized()
	for round, value := range []float64{240e6, 1.2e9} {
		r.Figures = append(r.Figures, Figure{Part: Failover, Row: "kill -9", What: "reads", Unit: Nanoseconds, Arm: "kvnode", Round: round, Value: value, Errors: map[string]int64{"its own clients: Unavailable": 7}})
	}
	r.Figures = append(r.Figures, Figure{Part: Failover, Row: "kill -9", What: "reads", Unit: Nanoseconds, Arm: "kvnode", Round: 2, Failed: "away"})
	if rows := table(t, r, "Fail-over: all samples").Rows; len(rows) != 1 || !slices.Equal(rows[0], []string{"kill -9", "reads", "kvnode", "240.0 1200.0 failed"}) {
		t.Errorf("samples %q", rows)
	}
	if rows := table(t, r, "Fail-over: how long reads and writes were away").Rows; len(rows) != 1 || rows[0][2] != "failed" {
		t.Errorf("rows %q, want the one that failed", rows)
	}
	if rows := table(t, r, "Failures").Rows; !slices.Equal(rows[len(rows)-1], []string{Failover, "kill -9 reads", "kvnode", "14", "its own clients: Unavailable"}) {
		t.Errorf("failures %q, want what clients were told in both rounds", rows)
	}
	if rows := table(t, r, "At size").Rows; len(rows) != 3 {
		t.Errorf("rows at size %q, want three", rows)
	}
	var out bytes.Buffer
	if err := r.WriteBenchstat(&out); err != nil || !strings.Contains(out.String(), "BenchmarkFailover/row=kill_-9/what=reads/arm=kvnode-0\t1\t2.4e+08 ns\n") {
		t.Errorf("WriteBenchstat() = %v\n%s", err, out.String())
	}
}

func table(t *testing.T, r *Report, title string) Table {
	t.Helper()
	all := r.Tables()
	i := slices.IndexFunc(all, func(tab Table) bool { return tab.Title == title })
	if i < 0 {
		t.Fatalf("the report lacks the table %q", title)
	}
	return all[i]
}
