package report

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/bench/load"
)

// services is a report of locks, watches and keep-alives, of two servers each.
func services() *Report {
	r := &Report{}
	for _, arm := range []string{"kvnode", "etcd"} {
		for _, m := range []struct {
			layer, op string
			group     Group
		}{
			{Locks, "acquire", Group{{"kind", "contended"}, {"clients", "4"}, {"members", "3"}}},
			{Watch, "event", Group{{"watchers", "1000"}, {"streams", "1"}, {"loop", "open-50/s"}, {"members", "3"}}},
			{KeepAlive, "keep-alive", Group{{"streams", "16"}, {"at", "leader"}, {"members", "3"}}},
		} {
			t := load.NewTally()
			for range 100 {
				t.Record(time.Millisecond)
			}
			if arm == "etcd" {
				t.Fail(errors.New("requested <lease> not found"))
				t.Fail(errors.New("requested <lease> not found"))
			}
			r.AddTally(Measurement{Layer: m.layer, Group: m.group, Arm: arm, Elapsed: time.Second}, m.op, t)
		}
	}
	return r
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

func TestEachServiceHasATableOfItsOwnWords(t *testing.T) {
	for title, want := range map[string]string{"Locks": "overlaps", "Watch fan-out": "wrong", "Keep-alives of TTL leases": "wrong"} {
		tab := table(t, services(), title)
		if len(tab.Rows) != 2 || tab.Rows[0][1] != "kvnode" || tab.Rows[1][3] != "1×" {
			t.Errorf("%s: rows %v, want kvnode and what is compared with it", title, tab.Rows)
		}
		if got := tab.Header[len(tab.Header)-1]; got != want || len(tab.Rows[0]) != len(tab.Header) {
			t.Errorf("%s: header %v for %v, want the last column to be %q", title, tab.Header, tab.Rows[0], want)
		}
	}
}

func TestTheReportSaysWhatFailuresSaid(t *testing.T) {
	rows := table(t, services(), "Failures").Rows
	want := []string{Locks, "kind=contended/clients=4/members=3 acquire", "etcd", "2", "requested <lease> not found"}
	if len(rows) != 3 || !slices.Equal(rows[0], want) {
		t.Errorf("failures %v, want one row for each arm and text, the first %v", rows, want)
	}
	var page bytes.Buffer
	if err := services().WriteHTML(&page); err != nil || !strings.Contains(page.String(), "requested &lt;lease&gt; not found") {
		t.Errorf("the page does not say so, or not escaped (%v)", err)
	}
}

func TestServicesArePlottedAndNamedForBenchstat(t *testing.T) {
	plots, err := services().Plots()
	if err != nil || len(plots) != 3 {
		t.Errorf("Plots() = %d plots, %v, want one for each service", len(plots), err)
	}
	var out bytes.Buffer
	if err := services().WriteBenchstat(&out); err != nil {
		t.Fatal(err)
	}
	const want = "BenchmarkLease/layer=watch/watchers=1000/streams=1/loop=open-50_s/members=3/op=event/arm=etcd-0\t100\t"
	if !strings.Contains(out.String(), want) {
		t.Errorf("benchstat text lacks %q:\n%s", want, out.String())
	}
}

func TestWhatServicesMustNotDoFailsTheRun(t *testing.T) {
	if err := services().Verdict(); err != nil {
		t.Fatalf("Verdict() = %v of a clean report", err)
	}
	for i, want := range []string{"acquire: 7 overlaps of 100", "event: 7 wrong of 100", "keep-alive: 7 wrong of 100"} {
		r := services()
		r.Measurements[i].Stale = 7
		if err := r.Verdict(); !errors.Is(err, ErrAudit) || !strings.Contains(err.Error(), want) {
			t.Errorf("Verdict() = %v, want %v with %q", err, ErrAudit, want)
		}
	}
}

func TestANoteIsMadeOnce(t *testing.T) {
	var r Report
	r.Note("%s: %d members.", "etcd", 3)
	r.Note("%s: %d members.", "etcd", 3)
	r.Note("%s: %d members.", "etcd", 1)
	if len(r.Notes) != 2 {
		t.Errorf("notes %v, want two", r.Notes)
	}
}
