package server

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/server/status"
)

// What etcd's users look for is there, under etcd's names, and counts.
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
