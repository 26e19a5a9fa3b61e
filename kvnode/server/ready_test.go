package server

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// kvnode_ready says what /readyz says, and kvnode_alarm which alarms are raised:
// operators alert on them.
func TestMetricsOfReadinessAndAlarms(t *testing.T) {
	all := trio(t, func(c *Config) {
		c.Node.TickInterval, c.Node.ElectionTimeout = 50*time.Millisecond, 500*time.Millisecond
	})
	left, others := leader(t, all)
	if got := metric(t, left, "kvnode_ready"); got != 1 {
		t.Errorf("kvnode_ready of a sound member = %v, want 1", got)
	}
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
	for left.Node().Leader() != 0 { // it steps down once it has not heard of the others
		time.Sleep(10 * time.Millisecond)
	}
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
