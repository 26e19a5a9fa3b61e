package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/bench/internal/servers"
	"github.com/leaderlease/go/internal/testcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const short = 10 * time.Millisecond

func run(t *testing.T, s *Suite) *report.Report {
	t.Helper()
	var steps []string
	var done time.Duration
	if err := s.Run(t.Context(), func(step string, d time.Duration) { steps, done = append(steps, step), d }); err != nil {
		t.Fatalf("Run() = %v after %v", err, steps)
	}
	if !slices.Equal(steps, s.Names()) || done > s.Takes() {
		t.Errorf("progress: %v of %v with %q, want every step", done, s.Takes(), steps)
	}
	if err := s.Report.Verdict(); err != nil {
		t.Error(err)
	}
	return s.Report
}

func TestClusterMeasuresEachArmAndCatchesTheWrongOnes(t *testing.T) {
	s := New()
	s.Cluster(ClusterPlan{
		Timing: Timing{Rounds: 1, Warmup: short, Duration: 3 * short}, Keys: 64, RTTs: []time.Duration{0, time.Millisecond},
		Works: []Work{{Clients: 4}}, Mixed: []Work{{Clients: 4, WritePercent: 50, Zipf: 1.1}, {Clients: 4, Rate: 200}},
		MixedRTT: time.Millisecond, Audit: true,
	})
	r := run(t, s)
	arms := make(map[string][]string)
	for _, f := range r.Figures {
		if f.What == "per second" {
			arms[f.Row] = append(arms[f.Row], f.Arm)
		}
	}
	if len(arms) != 5 {
		t.Errorf("rows %v, want 2 round trips, 1 mix with reads and writes, and an open loop", arms)
	}
	for where, names := range arms {
		if len(names) != len(clusterArms) || names[0] != "read-index" {
			t.Errorf("%s: arms %v, want %d", where, names, len(clusterArms))
		}
	}
	if len(r.Audits) != 2 {
		t.Errorf("audits %+v, want both wrong arms", r.Audits)
	}
}

func TestStaleComparesStockRaftWithLeaderlease(t *testing.T) {
	s := New()
	s.Stale(10, 1)
	if all := run(t, s).Staleness; len(all) != 2 || all[0].StaleReads == 0 || all[1].Reads == 0 {
		t.Errorf("staleness %+v, want stale reads of the first arm", all)
	}
}

func TestAFailingStepEndsTheRunAndStillCloses(t *testing.T) {
	s := New()
	failure, closed := errors.New("no"), []int{}
	s.later(func() error { closed = append(closed, 1); return nil })
	s.later(func() error { closed = append(closed, 2); return nil })
	s.add("fails", time.Second, func(context.Context) error { return failure })
	s.add("never", time.Second, func(context.Context) error { t.Error("the next step ran"); return nil })
	if err := s.Run(t.Context(), func(string, time.Duration) {}); !errors.Is(err, failure) || !strings.Contains(err.Error(), "fails: ") {
		t.Errorf("Run() = %v, want %v", err, failure)
	}
	if !slices.Equal(closed, []int{2, 1}) {
		t.Errorf("closed %v, want the last first", closed)
	}
}

func TestRoundsBeginWithDifferentArms(t *testing.T) {
	if got := rotated(3, 1); !slices.Equal(got, []int{1, 2, 0}) {
		t.Errorf("rotated(3, 1) = %v", got)
	}
}

func TestComparedArmsAreNamedByServer(t *testing.T) {
	arms := wireArms([]Server{{Name: "kvnode"}, {Name: "etcd"}})
	var names []string
	for _, a := range arms {
		names = append(names, a.name)
	}
	want := []string{
		"kvnode-read-index", "kvnode-lease", "kvnode-log", "kvnode-serializable", "kvnode-follower", "kvnode-three-endpoints", "kvnode-three-endpoints-client", "kvnode-fastkv",
		"etcd-linearizable", "etcd-serializable", "etcd-three-endpoints",
	}
	if !slices.Equal(names, want) {
		t.Errorf("arms %v, want %v", names, want)
	}
	if puts := armsFor(arms, Work{WritePercent: 100}); len(puts) != 6 || puts[4].name != "etcd-put" || puts[3].path != load.PathUnknown {
		t.Errorf("arms of writes %+v, want one for each server and way", puts)
	}
	if arms[1].mode != servers.ByLease || arms[8].mode != servers.Auto || arms[6].via != AllForLeader || arms[7].via != ByStream {
		t.Errorf("modes of %+v", arms)
	}
}

func TestAProgramThatEndsIsReported(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s := New()
	_, err := s.start(ctx, &Server{Name: "false", Program: &testcluster.Program{Name: "false", Path: "false"}})
	if err == nil || !strings.Contains(err.Error(), "false: ") {
		t.Errorf("start(false) = %v, want an error that names it", err)
	}
	if err := s.closeAll(); err != nil {
		t.Error(err)
	}
}
