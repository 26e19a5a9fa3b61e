package report

import (
	"errors"
	"os"
	"path/filepath"
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
				r.AddLoad(Figure{Part: Cluster, Row: "rtt=" + rtt, Arm: arm.name, Round: round},
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

const inProcess = "The whole linearizable read, in process"

func TestArmsAreComparedWithTheFirstOneInTheSameRound(t *testing.T) {
	tab := table(t, sample(), inProcess)
	want := [][]string{
		{"rtt=0s read", "read-index", "150 [100, 200]", "1×", "7.5ms [5ms, 10ms]", "7.5ms [5ms, 10ms]", "–", "2", "0", "lease 100%"},
		{"rtt=0s read", "lease", "2.5k [1k, 4k]", "15× [10×, 20×]", "625µs [250µs, 1ms]", "625µs [250µs, 1ms]", "625µs [250µs, 1ms]", "2", "0", "lease 100%"},
	}
	if len(tab.Rows) != 4 || !slices.EqualFunc(tab.Rows[:2], want, slices.Equal) || len(tab.Header) != len(want[0]) {
		t.Errorf("rows %q under %q, want 4 that begin with %q", tab.Rows, tab.Header, want)
	}
}

func TestAnArmThatGotNothingDoneIsShown(t *testing.T) {
	r := sample()
	nothing := &load.Result{Elapsed: time.Second, Read: load.NewTally(), Write: load.NewTally(), Asked: [2]bool{true, false}}
	r.AddLoad(Figure{Part: Cluster, Row: "rtt=0s", Arm: "log"}, nothing)
	if row := table(t, r, inProcess).Rows[2]; row[1] != "log" || row[2] != "0" || row[3] != "–" {
		t.Errorf("row %q, want a throughput of 0", row)
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
	want := []string{Cluster, "rtt=0s read", "lease", "2", "<down> & out"}
	if len(rows) != 4 || !slices.Equal(rows[0], want) {
		t.Errorf("failures %v, want one row for each arm and text, the first %v", rows, want)
	}
}

func TestVerdictFindsWhatMustNotBe(t *testing.T) {
	if err := sample().Verdict(); err != nil {
		t.Fatalf("Verdict() = %v of a clean report", err)
	}
	for name, spoil := range map[string]func(*Report){
		"stale lease read":           func(r *Report) { r.Figures[0].Counts.Stale = 1 },
		"stale follower read":        func(r *Report) { r.Figures[0].Arm, r.Figures[0].Counts.Stale = "follower", 1 },
		"path that is not the arm's": func(r *Report) { r.Figures[0].Counts.Paths[load.PathSerializable] = 1 },
		"wrong arm not caught":       func(r *Report) { r.Audits[0].Caught = false },
		"stale under partition":      func(r *Report) { r.Staleness[1].StaleReads = 1 },
		"stale etcd linearizable":    func(r *Report) { r.Figures[0].Arm, r.Figures[0].Counts.Stale = "etcd-linearizable", 2 },
	} {
		r := sample()
		spoil(r)
		if err := r.Verdict(); !errors.Is(err, ErrAudit) {
			t.Errorf("%s: Verdict() = %v, want %v", name, err, ErrAudit)
		}
	}
	r := sample()
	r.Figures[0].Arm, r.Figures[0].Counts.Stale = "serializable", 5
	if err := r.Verdict(); err != nil {
		t.Errorf("Verdict() = %v of stale serializable reads, which may be", err)
	}
}

func TestTheReportIsSaved(t *testing.T) {
	file, err := sample().Save(filepath.Join(t.TempDir(), "out"), "r.txt")
	if text, readErr := os.ReadFile(file); err != nil || readErr != nil || !strings.Contains(string(text), "leasebench test") {
		t.Errorf("Save() = %q, %v: %q, %v, want a file with the report", file, err, text, readErr)
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
		Nanoseconds.text(0): "–", Nanoseconds.text(27.14): "27.1ns", Nanoseconds.text(1234): "1.23µs", Nanoseconds.text(999.6e6): "1s",
		PerSecond.text(0): "0", PerSecond.text(12.345): "12.3", PerSecond.text(999.7): "1k", PerSecond.text(1_234_567): "1.23M",
		ratio(0): "–", ratio(598.2): "598×", ratio(0.1234): "0.123×",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPathsBeginWithTheOneMostTaken(t *testing.T) {
	c := load.Counts{Done: 4}
	c.Paths[load.PathLease], c.Paths[load.PathForwarded] = 1, 3
	if got := paths(&c); got != "forwarded 75%, lease 25%" {
		t.Errorf("paths = %q, want the most taken first", got)
	}
}

func sized() *Report {
	r := &Report{}
	for round, of := range []float64{1, 2, 4} {
		r.Figures = append(r.Figures,
			Figure{Part: Size, Row: "keys", What: "RSS", Unit: Bytes, Arm: "kvnode", Round: round, Value: of * 1e9},
			Figure{Part: Size, Row: "streams", What: "time", Arm: "kvnode", Round: round, Value: 5e8},
			Figure{Part: Size, Row: "keys", What: "RSS", Unit: Bytes, Arm: "etcd", Round: round, Value: 2e9},
			Figure{Part: Size, Row: "streams", What: "time", Arm: "etcd", Round: round, Missing: "stream 7: <refused>"},
			Figure{Part: Size, Row: "keys", What: "time", Arm: "etcd", Round: round, Value: 1e9},
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
	if len(failures) != 1 || failures[0][3] != "3" || failures[0][4] != "stream 7: <refused>" {
		t.Errorf("failures %v, want why there is no figure", failures)
	}
}

// Fail-over measurements have tables of their own, with each sample.
func TestFailoverHasTheirSamplesBesideThem(t *testing.T) {
	r := sized()
	for round, value := range []float64{240e6, 1.2e9} {
		r.Figures = append(r.Figures, Figure{Part: Failover, Row: "kill -9", What: "reads", Arm: "kvnode", Round: round, Value: value, Counts: load.Counts{Errors: map[string]int64{"its own clients: Unavailable": 7}}})
	}
	r.Figures = append(r.Figures, Figure{Part: Failover, Row: "kill -9", What: "reads", Arm: "kvnode", Round: 2, Missing: "away"})
	if rows := table(t, r, "Fail-over: all samples").Rows; len(rows) != 1 || !slices.Equal(rows[0], []string{"kill -9", "reads", "kvnode", "240.0 1200.0 failed"}) {
		t.Errorf("samples %q", rows)
	}
	if rows := table(t, r, "Fail-over: how long reads and writes were away").Rows; len(rows) != 1 || rows[0][2] != "failed" {
		t.Errorf("rows %q, want the one that failed", rows)
	}
	if rows := table(t, r, "Failures").Rows; !slices.Equal(rows[1], []string{Failover, "kill -9", "kvnode", "14", "its own clients: Unavailable"}) {
		t.Errorf("failures %q, want what clients were told in both rounds", rows)
	}
	if rows := table(t, r, "At size").Rows; len(rows) != 3 {
		t.Errorf("rows at size %q, want three", rows)
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
