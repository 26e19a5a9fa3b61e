package report

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
)

// sample is a report with something of everything: two rounds of two arms.
func sample() *Report {
	r := &Report{Environment: Environment{Date: time.Unix(0, 0).UTC(), Command: "leasebench test", MaxProcs: 2}}
	for round := range 2 {
		for _, rtt := range []string{"0s", "1ms"} {
			for _, arm := range []struct {
				name string
				done int64
			}{{"read-index", 100 * int64(round+1)}, {"lease", 1000 * int64((round+1)*(round+1))}} {
				t := load.NewTally()
				for range arm.done {
					t.Record(time.Second / time.Duration(arm.done))
				}
				t.Fail(errors.New("<down> & out"))
				t.Paths[load.PathLease] = arm.done
				group := Group{{"rtt", rtt}, {"clients", "64"}, {"writes", "0%"}, {"keys", "uniform"}, {"loop", "closed"}}
				r.AddLoad(Measurement{Layer: Cluster, Group: group, Arm: arm.name, Round: round},
					&load.Result{Elapsed: time.Second, Read: t, Write: load.NewTally(), Asked: [2]bool{true, false}, Sample: 1})
			}
		}
	}
	r.Staleness = []Staleness{
		{Arm: "raft ReadOnlyLeaseBased", Trials: 10, StaleRuns: 7, Reads: 100, StaleReads: 30, Window: 400 * time.Millisecond},
		{Arm: "leaderlease", Trials: 10, Reads: 80},
	}
	r.Audits = []Audit{{Arm: "value-before-check", Reads: 10, Stale: 3, Caught: true}}
	return r
}

func TestArmsAreComparedWithTheFirstOneInTheSameRound(t *testing.T) {
	all := sample().Comparisons(Cluster)
	if len(all) != 2 {
		t.Fatalf("%d comparisons, want one per round trip", len(all))
	}
	lease := all[0].Row("lease")
	if all[0].Base() != "read-index" || lease == nil {
		t.Fatalf("arms %+v, want read-index first, then lease", all[0].Rows)
	}
	if lease.Ratio != (Spread{15, 10, 20}) {
		t.Errorf("lease is %+v times read-index, want 15 from 10 to 20", lease.Ratio)
	}
	if p := lease.P50Ratio; p.Min < 9.9 || p.Max > 20.1 {
		t.Errorf("the median latency is %+v times better, want 10 to 20", p)
	}
	if lease.Failed != 2 || lease.Done != 5000 {
		t.Errorf("%d done and %d failed, want 5000 and 2", lease.Done, lease.Failed)
	}
}

func TestAnArmThatGotNothingDoneIsShown(t *testing.T) {
	r := sample()
	nothing := &load.Result{Elapsed: time.Second, Read: load.NewTally(), Write: load.NewTally(), Asked: [2]bool{true, false}}
	r.AddLoad(Measurement{Layer: Cluster, Group: r.Measurements[0].Group, Arm: "log"}, nothing)
	log := r.Comparisons(Cluster)[0].Row("log")
	if log == nil || log.Rounds != 1 || log.PerSecond != (Spread{}) {
		t.Errorf("Row(log) = %+v, want a round with a throughput of 0", log)
	}
	r.Measurements[0].Done = 0
	if got := r.Comparisons(Cluster)[0].Row("read-index").PerSecond; got != (Spread{100, 0, 200}) {
		t.Errorf("rounds of 0 and 200 per second are %+v, want a median of 100 from 0 on", got)
	}
}

func TestSpreadIsMedianAndRange(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{3, 1}, Spread{2, 1, 3}},
		{[]float64{9, 1, 2}, Spread{2, 1, 9}},
	} {
		if got := spreadOf(c.in); got != c.want {
			t.Errorf("spreadOf(%v) = %+v, want %+v", c.in, got, c.want)
		}
	}
}

func TestTheReportSaysWhatFailuresSaid(t *testing.T) {
	rows := table(t, sample(), "Failures").Rows
	want := []string{Cluster, "rtt=0s/clients=64/writes=0%/keys=uniform/loop=closed read", "read-index", "2", "<down> & out"}
	if len(rows) != 4 || !slices.Equal(rows[0], want) {
		t.Errorf("failures %v, want one row for each arm and text, the first %v", rows, want)
	}
}

func TestPercentilesWithoutEnoughOperationsAreNotShown(t *testing.T) {
	m := sample().Measurements[0] // 100 operations
	if m.At(0.99) == 0 || m.At(0.999) != 0 || m.At(1) == 0 {
		t.Errorf("latencies %v of 100 operations, want p99 and the greatest, and no p99.9", m.Latency)
	}
}

func TestVerdictFindsWhatMustNotBe(t *testing.T) {
	if err := sample().Verdict(); err != nil {
		t.Fatalf("Verdict() = %v of a clean report", err)
	}
	for name, spoil := range map[string]func(*Report){
		"stale lease read":           func(r *Report) { r.Measurements[1].Stale = 1 },
		"stale follower read":        func(r *Report) { r.Measurements[1].Arm, r.Measurements[1].Stale = "follower", 1 },
		"path that is not the arm's": func(r *Report) { r.Measurements[1].Paths["serializable"] = 1 },
		"wrong arm not caught":       func(r *Report) { r.Audits[0].Caught = false },
		"stale under partition":      func(r *Report) { r.Staleness[1].StaleReads = 1 },
		"stale etcd linearizable":    func(r *Report) { r.Measurements[0].Arm, r.Measurements[0].Stale = "etcd-linearizable", 2 },
	} {
		r := sample()
		spoil(r)
		if err := r.Verdict(); !errors.Is(err, ErrAudit) {
			t.Errorf("%s: Verdict() = %v, want %v", name, err, ErrAudit)
		}
	}
	r := sample()
	r.Measurements[0].Arm, r.Measurements[0].Stale = "serializable", 5
	if err := r.Verdict(); err != nil {
		t.Errorf("Verdict() = %v of stale serializable reads, which may be", err)
	}
}

func TestBothFormatsAreSaved(t *testing.T) {
	files, err := sample().Save(t.TempDir(), "r")
	if err != nil || len(files) != 2 {
		t.Errorf("Save() = %v, %v, want the text and that for benchstat", files, err)
	}
}

func TestBenchstatLinesAreNamedByKeyAndValue(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteBenchstat(&out); err != nil {
		t.Fatal(err)
	}
	const want = "BenchmarkLease/layer=cluster/rtt=0s/clients=64/writes=0%/keys=uniform/loop=closed/op=read/arm=lease-2\t1000\t1e+06 ns/op\t1000 ops/s"
	if !strings.Contains(out.String(), want) {
		t.Errorf("benchstat text lacks %q:\n%s", want, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "Benchmark") && len(fields)%2 != 0 {
			t.Errorf("line without pairs of value and unit: %q", line)
		}
	}
}

func TestTheEnvironmentNamesNoDirectory(t *testing.T) {
	if got := command([]string{"/some/where/leasebench", "all", "--start=etcd=/some/where/etcd"}); got != "leasebench all --start=etcd=etcd" {
		t.Errorf("command() = %q", got)
	}
	for in, want := range map[string]string{
		"all --start etcd=/usr/local/bin/etcd --out /var/x/out/": "all --start etcd=etcd --out out",
		"all --start=etcd=/tmp/a/etcd,--config,/etc/x.yml":       "all --start=etcd=etcd,--config,x.yml",
		"start /tmp/etcd: fork/exec /tmp/etcd: not there":        "start etcd: fork/exec etcd: not there",
		"--peer etcd=http://127.0.0.1:2379,http://[::1]:1/":      "--peer etcd=http://127.0.0.1:2379,http://[::1]:1/",
		"--out bench/results --start etcd=./etcd":                "--out bench/results --start etcd=./etcd",
		`open "/home/me/x": 50/s`:                                `open "x": 50/s`,
	} {
		if got := WithoutPaths(in); got != want {
			t.Errorf("WithoutPaths(%q) = %q, want %q", in, got, want)
		}
	}
	e := Here()
	for _, l := range e.Lines() {
		if l[1] == "" {
			t.Errorf("%s is empty", l[0])
		}
	}
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for got, want := range map[string]string{
		duration(0): "–", duration(27.14): "27.1ns", duration(1234): "1.23µs", duration(999.6e6): "1s",
		rate(0): "0", rate(12.345): "12.3", rate(999.7): "1k", rate(1_234_567): "1.23M",
		ratio(0): "–", ratio(598.2): "598×", ratio(0.1234): "0.123×",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Two prints of one report are the same, also where two paths were taken as often.
func TestPathsAreInOneOrder(t *testing.T) {
	row := &Row{Done: 4, Paths: map[string]int64{"lease": 2, "forwarded": 2, "joined": 0}}
	for range 100 {
		if got := paths(row); got != "forwarded 50%, lease 50%, joined 0%" {
			t.Fatalf("paths = %q, want the most taken first, and equal ones by name", got)
		}
	}
}

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

// Fail-over measurements have tables of their own, with each sample.
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
