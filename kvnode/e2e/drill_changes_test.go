package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func drillTimeouts(t *testing.T, m *machines) {
	m.found()
	before := m.pids()
	m.perform("timeouts")
	m.restartedSince(before)
	m.perform("timeouts") // a setting may be changed again
	out, err := m.sh("kvnode serve --config-file \"$CONF/m1.yaml\" --print-config\n")
	if err != nil || !strings.Contains(out, "election-timeout: 2000 ") {
		t.Errorf("--print-config = %s, %v, want an election timeout of 2000", out, err)
	}
}

// restartedSince fails the test unless each member has another process than in pids.
func (m *machines) restartedSince(pids []int) {
	m.t.Helper()
	for i, pid := range m.pids() {
		if pid == pids[i] {
			m.t.Errorf("m%d was not restarted", i+1)
		}
	}
}

// drillRestart has a leader that is not m2 transfer its leadership to m2.
func drillRestart(t *testing.T, m *machines) {
	m.found()
	leader, err := m.Leader(deadline(t))
	must(t, err)
	if leader.Name == "m2" {
		_, err := m.sh("etcdctl --endpoints=\"$ALL\" move-leader \"$(id_of m1 \"$ALL\")\"\n")
		must(t, err)
	}
	m.perform("leader")
	out, err := m.sh("fetch \"$M2/metrics\"\n")
	if led := regexp.MustCompile(`(?m)^kvnode_leader_fail_overs_total\{by="transfer"\} [1-9]`); err != nil || !led.MatchString(out) {
		t.Errorf("m2 does not say that leadership was transferred: %v", err)
	}
	before := m.pids()
	m.perform("restart")
	m.restartedSince(before)
}

// Settings for members that are far apart start, elect, serve, and hold a lease. That they do so where
// messages take their time is shown in kvnode/far_test.go.
func drillFar(t *testing.T, m *machines) {
	m.perform("far")
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	for ctx := deadline(t); !m.somebodyHolds(ctx); {
		if ctx.Err() != nil {
			t.Fatal("no member holds the leader lease")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// somebodyHolds reports whether a member says that it holds the leader lease, for as long as the page
// says: 750 ms.
func (m *machines) somebodyHolds(ctx context.Context) bool {
	for _, one := range m.Members()[:3] {
		code, body := page(ctx, one, "/metrics")
		text := string(body)
		if code == http.StatusOK && strings.Contains(text, "\nleaderlease_held{group=\"kvnode\"} 1\n") && strings.Contains(text, "\nleaderlease_duration_seconds{group=\"kvnode\"} 0.75\n") {
			return true
		}
	}
	return false
}

func (m *machines) pids() (all []int) {
	for _, one := range m.Members()[:3] {
		all = append(all, one.PID())
	}
	return all
}

// drillUpgrade goes from what is built here to the release, and back.
func drillUpgrade(t *testing.T, m *machines) {
	m.release()
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.between = m.edited(strings.Join(commands(t, "unpack"), ""))
	m.perform("upgrade")
	m.runsRelease(true)
	m.perform("downgrade")
	m.runsRelease(false)
	if n, _ := count(t, a, "k"); n != 10 {
		t.Errorf("%d of 10 keys are there", n)
	}
}

// runsRelease expects all members to run the release, or none.
func (m *machines) runsRelease(want bool) {
	m.t.Helper()
	for _, one := range m.Members()[:3] {
		_, body := page(m.t.Context(), one, "/metrics")
		if got := strings.Contains(string(body), "kvnode_build_info{version=\""+releaseVersion+"\"} 1"); got != want {
			m.t.Errorf("%s runs %s: %v, want %v", one.Name, releaseVersion, got, want)
		}
	}
}

// drillRoutine has one key written over and over. What is left of it is small, in a small file.
func drillRoutine(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	var first int64
	for i := range 200 {
		h := putSurely(t, a, "k", fmt.Sprint(i, strings.Repeat("x", 20<<10)))
		if i == 0 {
			first = h.GetRevision()
		}
	}
	m.perform("routine")
	if _, err := a.Get(deadline(t), "k", clientv3.WithRev(first)); err == nil {
		t.Error("the first version is still there")
	}
	for _, one := range m.Members()[:3] {
		status, err := a.Status(deadline(t), one.Endpoint)
		must(t, err)
		if status.DbSize > 1<<20 {
			t.Errorf("%s has a store of %d bytes, want less than 1 MiB of the 4 that were written", one.Name, status.DbSize)
		}
	}
	out, err := m.sh("kvnode serve --config-file \"$CONF/m2.yaml\" --print-config\n")
	if err != nil || !strings.Contains(out, "auto-compaction-retention: 1h ") {
		t.Errorf("--print-config = %s, %v, want compactions", out, err)
	}
}

// drillChecks has m3 compare itself at its next start: its data differs by then.
func drillChecks(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.perform("checks")
	one := m.member("m3")
	makeDiffer(deadline(t), t, a, one)
	if code, err := one.WaitExit(deadline(t)); err != nil || code <= 0 || !strings.Contains(one.Log(), "this member's data differs") {
		t.Errorf("m3, whose data differs, ends with code %d, %v, want a failure that says so", code, err)
	}
}
