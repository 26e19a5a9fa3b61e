package kvnode

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

func opTimes(n *Node, op string, success bool) (c OpTimes) {
	all, _ := n.ApplyTimes()
	for i := range all {
		if all[i].Op == op && all[i].Success == success {
			return all[i]
		}
	}
	return c
}

// Each entry with a request is counted, under etcd's names.
func TestApplyTimes(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		<-n.Published()
		c.put(n, "k", "v")
		c.get(n, ReadLog, "k") // an entry without a request
		before, _ := n.ApplyTimes()
		compact := &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 2}}
		for range 2 { // the second one is no failure
			if _, err := n.Propose(t.Context(), compact); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.Propose(t.Context(), &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 99}}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			op      string
			success bool
			n       uint64
		}{{"Put", true, 1}, {"ClusterMemberAttrSet", true, 1}, {"Compaction", true, 2}, {"LeaseRevoke", false, 1}, {"unknown", true, 0}} {
			if got := opTimes(n, want.op, want.success); got.Count != want.n {
				t.Errorf("%d entries of %s, success %v, want %d; before %+v", got.Count, want.op, want.success, want.n, before)
			}
		}
	})
}

// A slow entry is logged without the values in it, and not each time.
func TestSlowAppliesAreLogged(t *testing.T) {
	log := &lines{}
	inCluster(t, 1, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		n := c.leader()
		r := &store.Result{
			Command: &store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k\n"), Value: []byte("secret")}}},
			Err:     rpctypes.ErrGRPCNoSpace,
		}
		const line = "apply request took too long"
		n.applier.times.note(r, 7, 100*time.Millisecond)
		if log.count(line) > 0 {
			t.Errorf("an entry that took 100 ms is logged, want none")
		}
		for range 100 {
			n.applier.times.note(r, 7, 101*time.Millisecond)
		}
		if got := log.count(line); got != 3 {
			t.Errorf("%d lines of 100 slow entries at once, want 3", got)
		}
		for _, want := range []string{"took=101ms", "expected-duration=100ms", "op=Put", `put key=\"k\\n\" value_size=6`, "index=7", "database space exceeded"} {
			if log.count(want) == 0 {
				t.Errorf("the log lacks %s: %s", want, log.String())
			}
		}
		if log.count("secret") > 0 {
			t.Errorf("the log has a value")
		}
		if _, slow := n.ApplyTimes(); slow != 100 {
			t.Errorf("%d slow entries, want 100", slow)
		}
	})
}

// Each member logs once that an alarm is raised, and that it is disarmed. A member that starts logs the
// raised ones.
func TestAlarmsAreLogged(t *testing.T) {
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
				t.Errorf("%s %q is logged %d times, want %d", when, what, got, want)
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
