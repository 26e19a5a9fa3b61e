package server

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// Metrics with the same meaning as in etcd also have etcd's name, so that dashboards and
// alerts work. Others have kvnode's name only. For example, a checkpoint differs from a
// commit of etcd's backend, because no write waits for it.

// etcdGauge and etcdCounter have etcd's types. Some increasing values are gauges in etcd.
func etcdGauge(name, help string, value func(*reading) float64) family {
	return family{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
}

func etcdCounter(name, help string, value func(*reading) float64) family {
	return family{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value}
}

// etcdFamilies are etcd's metrics without labels.
var etcdFamilies = []family{
	etcdGauge("etcd_server_has_leader", "Whether or not a leader exists. 1 is existence, 0 is not.",
		func(r *reading) float64 { return boolValue(r.Leader != 0) }),
	etcdGauge("etcd_server_is_leader", "Whether or not this member is a leader. 1 if is, 0 otherwise.",
		func(r *reading) float64 { return boolValue(r.Leader != 0 && r.Leader == r.ID) }),
	etcdGauge("etcd_server_is_learner", "Whether or not this member is a learner. 1 if is, 0 otherwise.",
		func(r *reading) float64 { return boolValue(r.Learner) }),
	etcdCounter("etcd_server_leader_changes_seen_total", "The number of leader changes seen.",
		func(r *reading) float64 { return float64(r.changes) }),
	etcdGauge("etcd_server_proposals_committed_total", "The total number of consensus proposals committed.",
		func(r *reading) float64 { return float64(r.Commit) }),
	etcdGauge("etcd_server_proposals_applied_total", "The total number of consensus proposals applied.",
		func(r *reading) float64 { return float64(r.Applied) }),
	etcdGauge("etcd_server_proposals_pending", "The current number of pending proposals to commit.",
		func(r *reading) float64 { return float64(r.Waiting) }),
	etcdCounter("etcd_server_proposals_failed_total", "The total number of failed proposals seen.",
		func(r *reading) float64 { return float64(r.Counts.FailedProposals) }),
	etcdCounter("etcd_server_slow_apply_total", "The total number of slow apply requests (likely overloaded from slow disk).",
		func(r *reading) float64 { return float64(r.slowApplies + r.requests.Slow) }),
	etcdGauge("etcd_server_quota_backend_bytes", "Current backend storage quota size in bytes.",
		func(r *reading) float64 { return float64(r.dbQuota) }),
	etcdCounter("etcd_mvcc_range_total", "Total number of ranges seen by this member.",
		func(r *reading) float64 { return float64(r.ops.Ranges + r.requests.Ranges) }),
	etcdCounter("etcd_mvcc_put_total", "Total number of puts seen by this member.",
		func(r *reading) float64 { return float64(r.ops.Puts) }),
	etcdCounter("etcd_mvcc_delete_total", "Total number of deletes seen by this member.",
		func(r *reading) float64 { return float64(r.ops.Deletes) }),
	etcdCounter("etcd_mvcc_txn_total", "Total number of txns seen by this member.",
		func(r *reading) float64 { return float64(r.ops.Txns + r.requests.Txns) }),
	etcdGauge("etcd_mvcc_db_total_size_in_bytes", "Size of the store that counts towards the quota, as kvnode_db_size_bytes.",
		func(r *reading) float64 { return float64(r.dbSize) }),
	etcdGauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Part of the store that is in use, as kvnode_db_in_use_bytes.",
		func(r *reading) float64 { return float64(r.dbInUse) }),
	etcdGauge("etcd_debugging_mvcc_current_revision", "The current revision of store.",
		func(r *reading) float64 { return float64(r.revision) }),
	etcdGauge("etcd_debugging_mvcc_compact_revision", "The revision of the last compaction in store.",
		func(r *reading) float64 { return float64(r.compacted) }),
	etcdGauge("etcd_debugging_mvcc_total_put_size_in_bytes", "The total size of put kv pairs seen by this member.",
		func(r *reading) float64 { return float64(r.ops.PutBytes) }),
	etcdGauge("etcd_debugging_mvcc_watch_stream_total", "Total number of watch streams.",
		func(r *reading) float64 { return float64(r.watches.Streams) }),
	etcdGauge("etcd_debugging_mvcc_watcher_total", "Total number of watchers.",
		func(r *reading) float64 { return float64(r.watches.Watchers) }),
	etcdGauge("etcd_debugging_mvcc_slow_watcher_total", "Total number of unsynced slow watchers.",
		func(r *reading) float64 { return float64(r.watches.Behind) }),
	etcdGauge("etcd_debugging_mvcc_pending_events_total", "Total number of pending events to be sent.",
		func(r *reading) float64 { return float64(r.watches.Pending) }),
	etcdCounter("etcd_debugging_mvcc_events_total", "Total number of events sent by this member.",
		func(r *reading) float64 { return float64(r.watches.Sent) }),
	etcdCounter("etcd_debugging_server_lease_expired_total", "The total number of expired leases.",
		func(r *reading) float64 { return float64(r.TTL.Expirations) }),
	etcdCounter("etcd_debugging_lease_renewed_total", "The number of renewed leases seen by the leader.",
		func(r *reading) float64 { return float64(r.TTL.Renewals) }),
	etcdGauge("etcd_disk_wal_write_bytes_total", "Total number of bytes written in WAL.",
		func(r *reading) float64 { return float64(r.WAL.Bytes) }),
}

var (
	etcdID       = prometheus.NewDesc("etcd_server_id", "Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID.", []string{"server_id"}, nil)
	etcdApplies  = prometheus.NewDesc("etcd_server_apply_duration_seconds", "Time to apply an entry of the log.", []string{"version", "op", "success"}, nil)
	etcdRequests = prometheus.NewDesc("etcd_server_request_duration_seconds", "Response latency distribution in seconds for each type.", []string{"type", "success"}, nil)
	etcdFsyncs   = prometheus.NewDesc("etcd_disk_wal_fsync_duration_seconds", "The latency distributions of fsync called by WAL.", nil, nil)
)

func describeEtcd(descs chan<- *prometheus.Desc) {
	for i := range etcdFamilies {
		descs <- etcdFamilies[i].desc
	}
	for _, d := range []*prometheus.Desc{etcdID, etcdApplies, etcdRequests, etcdFsyncs} {
		descs <- d
	}
}

func collectEtcd(out chan<- prometheus.Metric, r *reading) {
	for i := range etcdFamilies {
		f := &etcdFamilies[i]
		out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(r))
	}
	out <- prometheus.MustNewConstMetric(etcdID, prometheus.GaugeValue, 1, transport.ID(r.ID))
	collectTimes(out, etcdApplies, r.applies, "v3")
	collectTimes(out, etcdRequests, r.requests.Times)
	out <- prometheus.MustNewConstHistogram(etcdFsyncs, r.WAL.Syncs, r.WAL.FlushTime.Seconds(), syncBuckets(r.WAL.FlushWithin))
}

func collectTimes(out chan<- prometheus.Metric, desc *prometheus.Desc, all []kvnode.OpTimes, before ...string) {
	for i := range all {
		t := &all[i]
		out <- prometheus.MustNewConstHistogram(desc, t.Count, t.Sum.Seconds(), t.Buckets(), append(before, t.Op, strconv.FormatBool(t.Success))...)
	}
}
