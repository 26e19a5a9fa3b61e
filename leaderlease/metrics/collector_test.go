package metrics

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

// fake is a Source that says what the test wants.
type fake struct {
	stats  leaderlease.Stats
	status leaderlease.Info
}

func (f *fake) Stats() leaderlease.Stats { return f.stats }
func (f *fake) Info() leaderlease.Info   { return f.status }

func collectorOf(source Source) *Collector {
	c := New()
	c.Add("g", source)
	return c
}

func TestMetricsPassTheLinter(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	c := collectorOf(&fake{})
	c.Add("other", &fake{})
	registry.MustRegister(c)
	problems, err := testutil.GatherAndLint(registry)
	if len(problems) > 0 || err != nil {
		t.Errorf("GatherAndLint() = %v, %v, want none", problems, err)
	}
}

// exported returns every series that is not 0, without its name's prefix.
func exported(t *testing.T, source Source) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectorOf(source))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var name strings.Builder
			name.WriteString(strings.TrimPrefix(f.GetName(), "leaderlease_"))
			for _, l := range m.GetLabel() {
				if l.GetName() != "group" {
					name.WriteString("{" + l.GetName() + "=" + l.GetValue() + "}")
				}
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				series[name.String()] = v
			}
		}
	}
	return series
}

// counterNames gives each counter of Stats, however deep, the name of its
// series; the rest is exported under the name of its field.
var counterNames = map[string]string{
	"Losses": "losses_total{reason=%s}", "Refused": "refusals_total{reason=%s}",
	"Reads": "reads_total{path=%s}", "Withheld": "withheld_total{kind=%s}",
	"Answered": "answered_reads_total", "Deaths": "obituaries_total", "RefusedProbes": "refused_probes_total",
	"Malformed": "malformed_fields_total", "Absent": "absent_fields_total", "ClockFaults": "clock_faults_total", "VoidedPromises": "voided_promises_total",
}

func seriesOf(field string, i int) string {
	name, ok := counterNames[field]
	switch {
	case !ok:
		return strings.ToLower(field) + "_total"
	case field == "Losses" || field == "Refused":
		return fmt.Sprintf(name, leaderlease.Status(i))
	case field == "Reads":
		return fmt.Sprintf(name, leaderlease.Path(i))
	case field == "Withheld":
		return fmt.Sprintf(name, kinds[i])
	default:
		return name
	}
}

func TestEveryCounterOfStatsIsExported(t *testing.T) {
	for field := range reflect.TypeFor[leaderlease.Stats]().Fields() {
		n := 1
		switch field.Type.Kind() {
		case reflect.Array:
			n = field.Type.Len()
		case reflect.Struct:
			n = field.Type.NumField()
		}
		for i := range n {
			var source fake
			v := reflect.ValueOf(&source.stats).Elem().FieldByIndex(field.Index)
			switch v.Kind() {
			case reflect.Array:
				v = v.Index(i)
			case reflect.Struct:
				v = v.Field(i)
			}
			v.SetUint(7)
			name := seriesOf(field.Name, i)
			got := exported(t, &source)
			if never(strings.TrimSuffix(name[strings.Index(name, "=")+1:], "}")) {
				if len(got) != 0 {
					t.Errorf("%s[%d], which cannot occur, is exported as %v", field.Name, i, got)
				}
				continue
			}
			if got[name] != 7 {
				t.Errorf("%s[%d] = 7 is exported as %v, want %s", field.Name, i, got, name)
			}
		}
	}
}

func TestStatusIsExported(t *testing.T) {
	s := leaderlease.Info{
		Term: 5, Status: leaderlease.StatusValid, Remaining: 2 * time.Second, EndsIn: 3 * time.Second,
		Promise: leaderlease.PromiseInfo{Remaining: 4 * time.Second, Hold: 6 * time.Second, Saved: 11 * time.Second},
		Commit:  30, Applied: 29, Waiting: 8,
		Duration: 9 * time.Second, MaxClockSkew: time.Second, MaxPromise: 10 * time.Second,
		Clock: clock.Info{CountsSuspend: true, Cost: 25 * time.Nanosecond},
		Err:   errors.New("misuse"),
		Peers: []leaderlease.PeerInfo{
			{ID: 2, GrantAge: time.Second, Duration: 9 * time.Second},
			{ID: 3, GrantAge: 10 * time.Second, Duration: 9 * time.Second},
			{ID: 4, GrantAge: -1},
			{ID: 5, GrantAge: time.Second, Duration: 8 * time.Second},
			{ID: 6, GrantAge: time.Second, Duration: 9 * time.Second, ClockSuspect: true},
		},
	}
	want := map[string]float64{
		"term": 5, "held": 1, "remaining_seconds": 2, "end_seconds": 3,
		"promise_remaining_seconds": 4, "restart_hold_seconds": 6,
		"commit_index": 30, "applied_index": 29, "waiting_reads": 8,
		"duration_seconds": 9, "margin_seconds": 1, "max_promise_seconds": 10, "saved_promise_seconds": 11,
		"clock_counts_suspend": 1, "clock_read_seconds": 25e-9, "misused": 1,
		"peers{state=granting}": 1, "peers{state=silent}": 2, "peers{state=other_duration}": 1, "peers{state=suspect_clock}": 1,
	}
	if got := exported(t, &fake{status: s}); !reflect.DeepEqual(got, want) {
		t.Errorf("exported status = %v, want %v", got, want)
	}
}

// A field that is added to Status is exported, or left out for a reason.
func TestFieldsOfStatusAreKnown(t *testing.T) {
	known := []string{
		"Term", "Status", "Remaining", "EndsIn", "Promise", "Peers", "Commit", "Applied", "Waiting",
		"Duration", "MaxClockSkew", "MaxPromise", "Clock", "Err",
		// The embedder's own raft metrics have these.
		"ID", "Leader", "Role",
	}
	for field := range reflect.TypeFor[leaderlease.Info]().Fields() {
		if !slices.Contains(known, field.Name) {
			t.Errorf("Status.%s is not exported, and not known", field.Name)
		}
	}
}

func TestManyGroupsInTwoRegistries(t *testing.T) {
	const groups = 100
	c := New()
	for i := range groups {
		c.Add(fmt.Sprint("group-", i), &fake{})
	}
	for range 2 {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		if n, err := testutil.GatherAndCount(registry, "leaderlease_held"); n != groups || err != nil {
			t.Errorf("GatherAndCount(held) = %d, %v, want %d", n, err, groups)
		}
	}
	c.Remove("group-7")
	c.Remove("unknown")
	c.Add("group-8", &fake{status: leaderlease.Info{Status: leaderlease.StatusValid}})
	if n := testutil.CollectAndCount(c, "leaderlease_held"); n != groups-1 {
		t.Errorf("groups after Remove = %d, want %d", n, groups-1)
	}
}

func TestGroupsComeAndGoDuringScrapes(t *testing.T) {
	c := New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				c.Add(fmt.Sprint(i), &fake{})
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
				c.Remove(fmt.Sprint(i))
			}
		})
	}
	wg.Wait()
}

func TestGroupThatIsNotTextFailsTheScrape(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := New()
	c.Add("\xff", &fake{})
	registry.MustRegister(c)
	if _, err := registry.Gather(); err == nil {
		t.Error("Gather() with a group that is not UTF-8 = nil, want an error")
	}
}

func TestScrapeChangesNoCounter(t *testing.T) {
	lease := newLease(t)
	lease.TryRead() // counts a refusal
	before := lease.Stats()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectorOf(lease))
	for range 20 {
		if _, err := registry.Gather(); err != nil {
			t.Fatal(err)
		}
	}
	if after := lease.Stats(); after != before {
		t.Errorf("Stats() after 20 scrapes = %+v, want %+v", after, before)
	}
}

func newLease(tb testing.TB) *leaderlease.Lease {
	tb.Helper()
	storage := raft.NewMemoryStorage()
	snapshot := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
	}}
	if err := storage.ApplySnapshot(snapshot); err != nil {
		tb.Fatal(err)
	}
	lease, err := leaderlease.New(leaderlease.Config{
		TickInterval: 100 * time.Millisecond,
		Raft: &raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return lease
}

// The package comment has the number of series of a group.
func TestDocCountsTheSeries(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectorOf(&fake{}))
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range gathered {
		series += len(f.GetMetric())
	}
	if want := fmt.Sprintf("A group has %d series.", series); !strings.Contains(string(doc), want) {
		t.Errorf("doc.go does not say %q", want)
	}
}

// BenchmarkScrape is what a scrape costs for each group.
func BenchmarkScrape(b *testing.B) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectorOf(newLease(b)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
