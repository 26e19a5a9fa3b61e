package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/bench/internal/servers"
	"github.com/leaderlease/go/internal/testcluster"
)

func failoverPlan(rounds int) FailoverPlan {
	etcd, kvnode := testcluster.Program{Name: "etcd"}, testcluster.Program{Name: "kvnode"}
	return FailoverPlan{
		Rounds: rounds, Members: 3, deaths: servers.All,
		Servers: []Server{{Name: "kvnode", Program: &kvnode}, {Name: "etcd", Program: &etcd}},
	}
}

func TestLeadersDieInTurn(t *testing.T) {
	s := New()
	s.Failover(failoverPlan(2))
	plan := s.Names()
	for _, want := range [][]string{
		{"failover: start 3 members of kvnode for kill -9", "failover: start 3 members of etcd for kill -9", "failover: round 1, kill -9, kvnode", "failover: round 1, kill -9, etcd", "failover: round 1, panic, kvnode"},
		{"failover: round 1, SIGSTOP, etcd", "failover: round 2, kill -9, etcd", "failover: round 2, kill -9, kvnode"},
		{"failover: stop", "failover: start 5 members of kvnode for two of five"},
	} {
		from := max(slices.Index(plan, want[0]), 0)
		if want[0] == "failover: stop" {
			from = slices.Index(plan, want[1]) - 1
		}
		if !slices.Equal(plan[from:min(from+len(want), len(plan))], want) {
			t.Errorf("the plan is %q, want it to have %q", plan, want)
		}
	}
}

func TestTwentyRoundsTakeHalfAnHour(t *testing.T) {
	s := New()
	s.Failover(failoverPlan(20))
	if s.Takes() > 31*time.Minute {
		t.Errorf("20 rounds take %v", s.Takes())
	}
}

func TestWhatCannotBeDoneIsLeftOutLoudly(t *testing.T) {
	s := New()
	p := failoverPlan(1)
	p.cannot = map[servers.Needs]error{servers.Cables: errors.New("not permitted")}
	s.Failover(p)
	if len(s.Report.Notes) != 1 || !strings.Contains(s.Report.Notes[0], "LEFT OUT: cable pulled: members cannot have networks of their own: not permitted") {
		t.Errorf("notes %q, want one about the cable", s.Report.Notes)
	}
	if slices.ContainsFunc(s.Names(), func(n string) bool { return strings.Contains(n, "cable") }) || !slices.Contains(s.Names(), "failover: round 1, disk fails, etcd") {
		t.Errorf("the plan is %q, want all but the cable", s.Names())
	}
}
