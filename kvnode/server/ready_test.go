package server

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// kvnode_ready says what /readyz says, and kvnode_alarm which alarms are raised:
// operators alert on them.
func TestMetricsOfReadinessAndAlarms(t *testing.T) {
	skipShort(t)
	all := trio(t, elects(2*time.Second))
	left, others := leader(t, all)
	until(t, "kvnode_ready of a sound member is 1", func() bool { return metric(t, left, "kvnode_ready") == 1 })
	if got := alarmMetric(t, left, "NOSPACE"); got != 0 {
		t.Errorf("kvnode_alarm of NOSPACE = %v, want 0", got)
	}
	for _, s := range all[:2] {
		if _, err := left.Node().Propose(t.Context(), &pb.InternalRaftRequest{
			Alarm: &pb.AlarmRequest{MemberID: s.Node().ID(), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if no, corrupt := alarmMetric(t, left, "NOSPACE"), alarmMetric(t, left, "CORRUPT"); no != 2 || corrupt != 0 {
		t.Errorf("kvnode_alarm = %v of NOSPACE and %v of CORRUPT, want 2 and 0", no, corrupt)
	}
	if got := left.Report().Alarms; len(got) != 2 || got[0].Type != "NOSPACE" || got[0].Name == "" {
		t.Errorf("Report().Alarms = %+v, want NOSPACE of two, by name", got)
	}
	for _, s := range others {
		stop(t, s)
	}
	until(t, "a leader without the others steps down", func() bool { return left.Node().Leader() == 0 })
	if got := metric(t, left, "kvnode_ready"); got != 0 {
		t.Errorf("kvnode_ready without a quorum = %v, want 0", got)
	}
}

// alarmMetric returns kvnode_alarm of one type.
func alarmMetric(t *testing.T, s *Server, kind string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kvnode_alarm" && m.GetLabel()[0].GetValue() == kind {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Errorf("there is no metric kvnode_alarm of %s", kind)
	return -1
}
