package e2e

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
