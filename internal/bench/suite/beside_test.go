package suite

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/bench/wire"
	"github.com/leaderlease/go/internal/procs"
)

// twoServers are one that is started and one that runs, of three members.
func twoServers() []Server {
	return []Server{
		{Name: "kvnode", Program: &procs.Program{Name: "kvnode", Path: "kvnode"}},
		{Name: "etcd", Program: &procs.Program{Name: "etcd", Path: "etcd"}},
		{Name: "running", Endpoints: []string{"a:1", "b:1", "c:1"}},
	}
}

func TestServersAreMeasuredSideBySideInEachSize(t *testing.T) {
	b := Beside{Timing: Timing{Rounds: 2, Duration: time.Second}, Servers: twoServers(), Members: []int{1, 3}}
	s := New()
	s.Locks(LockPlan{Beside: b, Clients: []int{4}})
	plan := s.Names()
	want := []string{
		"locks: start kvnode, members=1", "locks: start etcd, members=1",
		"locks: members=1, round 1, sequential, 1 clients, kvnode", "locks: members=1, round 1, sequential, 1 clients, etcd",
		"locks: members=1, round 1, parallel, 4 clients, kvnode",
	}
	if !slices.Equal(plan[:len(want)], want) {
		t.Errorf("the plan begins with\n%s\nwant\n%s", strings.Join(plan[:len(want)], "\n"), strings.Join(want, "\n"))
	}
	stop := slices.Index(plan, "locks: stop")
	if next := plan[stop+1]; stop < 0 || next != "locks: start kvnode, members=3" {
		t.Errorf("after the clusters of one stop comes %q, want the next size", next)
	}
	if !slices.Contains(plan, "locks: members=3, round 1, contended, 4 clients, running") || slices.Contains(plan, "locks: members=1, round 1, contended, 4 clients, running") {
		t.Error("the server that runs is not measured beside clusters of its own size, and only there")
	}
	if i, j := slices.Index(plan, "locks: members=1, round 2, sequential, 1 clients, etcd"), slices.Index(plan, "locks: members=1, round 2, sequential, 1 clients, kvnode"); i < 0 || i > j {
		t.Error("the order does not turn from round to round")
	}
}

func TestASizeThatOnlyARunningServerHasIsMeasuredToo(t *testing.T) {
	b := Beside{Servers: twoServers(), Members: []int{1}}
	if got := b.sizes(); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("sizes() = %v, want those to start and the running server's", got)
	}
}

func TestKeepAlivesAreMeasuredAtTheLeaderAndAtAFollower(t *testing.T) {
	s := New()
	s.KeepAlive(KeepAlivePlan{Beside: Beside{Timing: Timing{Rounds: 1}, Servers: twoServers()[:1], Members: []int{1, 3}}, TTLLeases: 10, Streams: []int{2}})
	var at []string
	for _, step := range s.Names() {
		if strings.Contains(step, "streams at") {
			at = append(at, step)
		}
	}
	want := []string{
		"keepalive: members=1, round 1, 2 streams at the leader, kvnode",
		"keepalive: members=3, round 1, 2 streams at the leader, kvnode",
		"keepalive: members=3, round 1, 2 streams at the follower, kvnode",
	}
	if !slices.Equal(at, want) {
		t.Errorf("steps %v, want %v", at, want)
	}
}

func TestPartsAddUpToThePlan(t *testing.T) {
	s := New()
	s.Watch(WatchPlan{Beside: Beside{Timing: Timing{Rounds: 1, Duration: time.Second}, Servers: twoServers()[:1], Members: []int{1, 3}}, Works: []WatchWork{{Watchers: 10, Streams: 1}}, Audit: true})
	s.Stale(10, 1)
	parts := s.Parts()
	var sum time.Duration
	for _, p := range parts {
		sum += p.Takes
	}
	if len(parts) != 3 || parts[0].Name != report.Watch || parts[1].Name != "audit" || parts[2].Name != "stale" || sum != s.Takes() {
		t.Errorf("parts %+v of %v, want watch, audit and stale", parts, s.Takes())
	}
	audits := slices.DeleteFunc(s.Names(), func(n string) bool { return !strings.HasPrefix(n, "audit: ") })
	if len(audits) != len(wire.Wrongs) {
		t.Errorf("%v, want each wrong stream once", audits)
	}
}
