package server

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leaderlease/go/kvnode/server/status"
	"github.com/leaderlease/go/leaderlease/detector"
)

// etcd's metrics exist under etcd's names, with the right counts.
func TestMetricsOfEtcd(t *testing.T) {
	s := solo(t)
	c := client(t, s)
	watching := c.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	<-watching
	if _, err := c.Put(t.Context(), "k", "value"); err != nil {
		t.Fatal(err)
	}
	<-watching
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Txn(t.Context()).Then(clientv3.OpPut("k", "value"), clientv3.OpGet("k"), clientv3.OpGet("l")).Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	_, body := page(t, s, "/metrics")
	for _, want := range []string{
		"etcd_server_has_leader 1", "etcd_server_is_leader 1", "etcd_server_is_learner 0", "etcd_server_slow_apply_total ",
		"etcd_server_id{server_id=\"" + status.ID(s.Node().ID()) + "\"} 1",
		"etcd_mvcc_put_total 2", "etcd_mvcc_delete_total 1", "etcd_mvcc_range_total 3", "etcd_mvcc_txn_total 1",
		"etcd_debugging_mvcc_total_put_size_in_bytes 12", "etcd_debugging_mvcc_current_revision 4",
		"etcd_debugging_mvcc_watch_stream_total 1", "etcd_debugging_mvcc_watcher_total 1", "etcd_debugging_mvcc_slow_watcher_total 0",
		`etcd_server_apply_duration_seconds_count{op="Put",success="true",version="v3"} 1`,
		`etcd_server_apply_duration_seconds_bucket{op="Txn",success="true",version="v3",le="52.4288"} 1`,
		`etcd_server_request_duration_seconds_count{success="true",type="Range"} 1`,
		`etcd_disk_wal_fsync_duration_seconds_bucket{le="5e-05"}`, `etcd_disk_wal_fsync_duration_seconds_bucket{le="8.192"}`,
		`kvnode_wal_sync_seconds_bucket{le="0.001"}`, `kvnode_checkpoint_seconds_bucket{le="0.0005"} 0`, "kvnode_reads_failed_total ",
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

// failedOver exports fail-over statistics.
type failedOver detector.Stats

func (failedOver) Describe(descs chan<- *prometheus.Desc) { descs <- failOvers; descs <- lastOver }

func (f failedOver) Collect(out chan<- prometheus.Metric) {
	collectFailOvers(out, (*detector.Stats)(&f))
}

func TestMetricsSayHowALeaderWasReplaced(t *testing.T) {
	const ms = time.Millisecond
	s := detector.Stats{Last: detector.FailOver{Cause: detector.ConnClosed, Detection: 2 * ms, Promise: 240 * ms, Election: 8 * ms, Commit: 3 * ms}}
	s.FailOvers[detector.ConnClosed], s.FailOvers[detector.Transfer] = 1, 2
	want := `# HELP kvnode_last_fail_over_seconds Duration of each part of the last fail-over: detected, since the leader's last message; promise, until this member's promise ended and three heartbeats were missing; election; commit, of the next leader's first entry.
# TYPE kvnode_last_fail_over_seconds gauge
kvnode_last_fail_over_seconds{by="hint",part="commit"} 0.003
kvnode_last_fail_over_seconds{by="hint",part="detected"} 0.002
kvnode_last_fail_over_seconds{by="hint",part="election"} 0.008
kvnode_last_fail_over_seconds{by="hint",part="promise"} 0.24
# HELP kvnode_leader_fail_overs_total Leaders that were replaced, by cause: hint, pre-vote, silence (for an election timeout), learnt-silence (longer than usual), obituary (a supervisor's report), transfer, resignation (reported by the transferee).
# TYPE kvnode_leader_fail_overs_total counter
kvnode_leader_fail_overs_total{by="hint"} 1
kvnode_leader_fail_overs_total{by="learnt-silence"} 0
kvnode_leader_fail_overs_total{by="obituary"} 0
kvnode_leader_fail_overs_total{by="pre-vote"} 0
kvnode_leader_fail_overs_total{by="resignation"} 0
kvnode_leader_fail_overs_total{by="silence"} 0
kvnode_leader_fail_overs_total{by="transfer"} 2
`
	if err := testutil.CollectAndCompare(failedOver(s), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(failedOver{}); n != detector.NumCauses {
		t.Errorf("%d metrics before the first fail-over, want only the counters", n)
	}
}

// kvnode_ready agrees with /readyz, and kvnode_alarm shows the active alarms: operators alert on
// them.
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

// health returns the status of a health service, as Kubernetes probes do.
func health(t *testing.T, s *Server, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := healthpb.NewHealthClient(dial(t, s)).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatalf("Check(%q) of %s: %v", service, s.cfg.Node.Name, err)
	}
	return r.GetStatus()
}

// A member without a quorum is alive and not ready, by gRPC and HTTP.
func TestHealthWithoutAQuorum(t *testing.T) {
	skipShort(t)
	all := trio(t, elects(500*time.Millisecond))
	left, others := leader(t, all)
	// On a busy machine the quorum may be lost for a moment.
	until(t, "health with a quorum is SERVING", func() bool { return health(t, left, "") == healthpb.HealthCheckResponse_SERVING })
	for _, s := range others {
		stop(t, s)
	}
	until(t, "a leader without the others steps down", func() bool { return left.Node().Leader() == 0 })
	if got := health(t, left, ""); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health without a quorum = %v, want NOT_SERVING", got)
	}
	if got := health(t, left, "livez"); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health of the process without a quorum = %v, want SERVING", got)
	}
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		if code, body := page(t, left, path); code != want {
			t.Errorf("GET %s without a quorum = %d %s, want %d", path, code, body, want)
		}
	}
}

// A restarted member serves as soon as it is ready, and its health is SERVING although it may not
// vote yet. etcd's fault injection asks after the log line that the member is ready.
func TestHealthAfterARestart(t *testing.T) {
	_, others := leader(t, trio(t))
	stop(t, others[0])
	s, err := again(t, others[0], func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the member is ready", s.Ready())
	if got := health(t, s, ""); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health of a member that is ready = %v, want SERVING", got)
	}
}
