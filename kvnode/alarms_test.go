package kvnode

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Each member logs once that an alarm is raised, and that it is disarmed, and one
// that starts says which are.
func TestAlarmsAreSaid(t *testing.T) {
	log := &lines{}
	inCluster(t, 3, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		id := leader.ID()
		alarm := func(action pb.AlarmRequest_AlarmAction) {
			t.Helper()
			if _, err := leader.Propose(t.Context(), &pb.InternalRaftRequest{
				Alarm: &pb.AlarmRequest{MemberID: id, Action: action, Alarm: pb.AlarmType_NOSPACE},
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		said := func(when, what string, want int) {
			t.Helper()
			if got := log.count(what); got != want {
				t.Errorf("%s %q was said %d times, want %d", when, what, got, want)
			}
		}
		raised, disarmed := `"alarm raised" member=`, `"alarm disarmed" member=`
		alarm(pb.AlarmRequest_ACTIVATE)
		alarm(pb.AlarmRequest_ACTIVATE)
		said("raised twice,", raised, 3)
		if got := leader.Status().Alarms; len(got) != 1 {
			t.Errorf("Status().Alarms = %v, want one", got)
		}
		if err := leader.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.stop(leader.Name())
		c.start(leader.Name())
		leader = c.leader()
		said("after a restart", raised, 4)
		said("before it is disarmed", disarmed, 0)
		alarm(pb.AlarmRequest_DEACTIVATE)
		said("disarmed", disarmed, 3)
	})
}
