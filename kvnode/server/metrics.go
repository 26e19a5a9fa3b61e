package server

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/connlimit"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/watch"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/metrics"
	"github.com/leaderlease/go/raftwal"
)

// leaseGroup is the label of the only Raft group in leaderlease's metrics.
const leaseGroup = "kvnode"

// newRegistry returns a registry with all exported metrics.
func (s *Server) newRegistry(more ...prometheus.Collector) (*prometheus.Registry, error) {
	leases := metrics.New()
	leases.Add(leaseGroup, s.node.Lease())
	all := append([]prometheus.Collector{
		leases,
		nodeCollector{s},
		connCollector{s.clients},
		s.node.LinkMetrics(),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, more...)
	registry := prometheus.NewRegistry()
	var errs []error
	for _, c := range all {
		errs = append(errs, registry.Register(c))
	}
	return registry, errors.Join(errs...)
}

// reading is the state of a member at a scrape.
type reading struct {
	kvnode.Status
	revision, compacted int64
	dbSize, dbInUse     int64
	dbUnsaved, dbQuota  int64
	changes             uint64
	droppedLogLines     uint64
	openStreams         int64
	refusedStreams      uint64
	ready               bool
	ttlLeases           int
	applies             []kvnode.OpTimes
	slowApplies         uint64
	requests            etcdapi.RequestStats
	ops                 store.Ops
	watches             watch.Stats
}

func (s *Server) read() *reading {
	st := s.node.Store()
	r := &reading{
		Status: s.node.Status(), revision: st.Revision(), compacted: st.CompactRevision(),
		changes: s.changes.Load(), ready: s.readyNow(), ttlLeases: st.CountTTLLeases(),
	}
	if s.cfg.DroppedLogLines != nil {
		r.droppedLogLines = s.cfg.DroppedLogLines()
	}
	r.applies, r.slowApplies = s.node.ApplyTimes()
	r.requests, r.ops, r.watches = s.api.RequestStats(), st.Ops(), s.node.Watch().Stats()
	r.openStreams, r.refusedStreams = s.clients.Streams()
	r.dbSize, r.dbInUse = etcdapi.QuotaSize(st)
	r.dbQuota = s.cfg.API.QuotaBytes
	r.dbUnsaved = st.UnsavedBytes()
	return r
}

// family is a metric without labels.
type family struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*reading) float64
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kvnode_"+name, help, labels, nil)
}

func gauge(name, help string, value func(*reading) float64) family {
	return family{describe(name, help), prometheus.GaugeValue, value}
}

func counter(name, help string, value func(*reading) float64) family {
	return family{describe(name, help), prometheus.CounterValue, value}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// families describe the member. leaderlease_… describe its lease, and kvnode_transport_… its
// links to other members.
var families = []family{
	gauge("ready", "1 once the member is ready, while /readyz succeeds within a second, else 0.",
		func(r *reading) float64 { return boolValue(r.ready) }),
	gauge("has_leader", "1 if a leader is known, else 0.",
		func(r *reading) float64 { return boolValue(r.Leader != 0) }),
	gauge("is_leader", "1 if this member leads, else 0.",
		func(r *reading) float64 { return boolValue(r.Leader != 0 && r.Leader == r.ID) }),
	gauge("is_learner", "1 if this member is a learner, else 0.",
		func(r *reading) float64 { return boolValue(r.Learner) }),
	counter("leader_changes_total", "Leaders that this member has seen since its start.",
		func(r *reading) float64 { return float64(r.changes) }),
	counter("leader_false_alarms_total", "Suspicions of a leader that a later message from it has ended.",
		func(r *reading) float64 { return float64(r.Suspicions.FalseSuspicions) }),
	counter("leader_forgotten_total", "Times that raft was told to forget a suspected leader, after the promise to it had ended.",
		func(r *reading) float64 { return float64(r.Suspicions.Forgets) }),
	gauge("leader_silence_limit_seconds", "Silence after which this member suspects the leader: the election timeout until it has learned a shorter one, 0 if it leads or does not learn.",
		func(r *reading) float64 { return r.Suspicions.Limit.Seconds() }),
	gauge("term", "Newest term that this member knows.",
		func(r *reading) float64 { return float64(r.Term) }),
	gauge("commit_index", "Newest index known to be committed.",
		func(r *reading) float64 { return float64(r.Commit) }),
	gauge("applied_index", "Newest index that is applied and visible to readers.",
		func(r *reading) float64 { return float64(r.Applied) }),
	gauge("last_index", "Last index of the log.",
		func(r *reading) float64 { return float64(r.Last) }),
	gauge("revision", "Newest revision that is visible to readers.",
		func(r *reading) float64 { return float64(r.revision) }),
	gauge("compact_revision", "Newest compacted revision.",
		func(r *reading) float64 { return float64(r.compacted) }),
	gauge("format", "Cluster version, which determines the features that the cluster may use.",
		func(r *reading) float64 { return float64(r.ClusterVersion) }),
	gauge("format_newest", "Newest cluster version that this member's version supports.",
		func(r *reading) float64 { return float64(r.NewestClusterVersion) }),
	gauge("format_keepers", "Members that prevent an upgrade to the newest cluster version: of an older version, or not connected. The status names them.",
		func(r *reading) float64 { return float64(len(r.ClusterVersionKeptBy)) }),
	gauge("ttl_leases", "TTL leases that clients hold.",
		func(r *reading) float64 { return float64(r.ttlLeases) }),
	gauge("ttl_revoking", "Expired TTL leases with a revocation in progress, on the leader.",
		func(r *reading) float64 { return float64(r.TTL.Revoking) }),
	counter("ttl_renewals_total", "Keep-alives that this member has answered as the leader.",
		func(r *reading) float64 { return float64(r.TTL.Renewals) }),
	counter("ttl_expirations_total", "TTL leases that this member, as the leader, has revoked because no keep-alive arrived.",
		func(r *reading) float64 { return float64(r.TTL.Expirations) }),
	counter("ttl_checkpoints_total", "Times that this member, as the leader, has replicated the remaining time of a TTL lease.",
		func(r *reading) float64 { return float64(r.TTL.Checkpoints) }),
	gauge("client_open_streams", "Requests, watches and waits in progress, over gRPC and over HTTP.",
		func(r *reading) float64 { return float64(r.openStreams) }),
	counter("client_refused_streams_total", "Requests, watches and waits that were rejected because of the limit of open streams.",
		func(r *reading) float64 { return float64(r.refusedStreams) }),
	gauge("proposals_pending", "Proposals of this member's clients in progress.",
		func(r *reading) float64 { return float64(r.Waiting) }),
	counter("proposals_failed_total", "Proposals of this member that failed, or with an unknown outcome.",
		func(r *reading) float64 { return float64(r.Counts.FailedProposals) }),
	counter("proposals_voided_total", "Attempts of this member that no leader replicated in their term, and that were proposed again.",
		func(r *reading) float64 { return float64(r.Counts.VoidedProposals) }),
	counter("reads_failed_total", "Linearizable reads of this member, except of mode log, that failed and were not cancelled by their client.",
		func(r *reading) float64 { return float64(r.Counts.FailedReads) }),
	counter("malformed_entries_total", "Entries that cannot be decoded and have no effect, in the log or in forwarded proposals. A peer is faulty, or not a member.",
		func(r *reading) float64 { return float64(r.Counts.Malformed) }),
	counter("checkpoint_failures_total", "Checkpoints that failed.",
		func(r *reading) float64 { return float64(r.Counts.FailedCheckpoints) }),
	gauge("checkpoint_max_seconds", "Longest checkpoint since the start.",
		func(r *reading) float64 { return r.Counts.MaxCheckpointTime.Seconds() }),
	gauge("disk_full", "1 while writes are rejected because the disk is full, else 0.",
		func(r *reading) float64 { return boolValue(r.DiskFull) }),
	gauge("checkpoint_index", "Index of the newest durable checkpoint: a restart replays the log after it.",
		func(r *reading) float64 { return float64(r.Checkpoint.Index) }),
	gauge("checkpoint_revision", "Revision of the newest durable checkpoint.",
		func(r *reading) float64 { return float64(r.Checkpoint.Revision) }),
	gauge("db_quota_bytes", "Quota: the limit of db_size_bytes. Negative means no limit.",
		func(r *reading) float64 { return float64(r.dbQuota) }),
	gauge("db_size_bytes", "Size of the store that counts towards the quota: of the checkpoint's file, including what the next checkpoint will write.",
		func(r *reading) float64 { return float64(r.dbSize) }),
	gauge("db_unsaved_bytes", "Part of the store that no checkpoint has yet, estimated.",
		func(r *reading) float64 { return float64(r.dbUnsaved) }),
	gauge("db_in_use_bytes", "Part of db_size_bytes that is in use. A defragmentation frees the rest.",
		func(r *reading) float64 { return float64(r.dbInUse) }),
	gauge("wal_sync_max_seconds", "Longest write and sync of the log since the start.",
		func(r *reading) float64 { return r.WAL.MaxSyncTime.Seconds() }),
	gauge("tick_late_max_seconds", "Longest delay of a tick of the raft loop since the start. Above the election timeout a leader loses its leadership.",
		func(r *reading) float64 { return r.Late.Max.Seconds() }),
	counter("log_lines_dropped_total", "Log lines that an output did not receive, because it was blocked or failed.",
		func(r *reading) float64 { return float64(r.droppedLogLines) }),
	counter("wal_directory_syncs_total", "Syncs of the log's directory.",
		func(r *reading) float64 { return float64(r.WAL.DirSyncs) }),
	counter("wal_entries_total", "Entries written to the log.",
		func(r *reading) float64 { return float64(r.WAL.Entries) }),
	counter("wal_written_bytes_total", "Bytes written to the log.",
		func(r *reading) float64 { return float64(r.WAL.Bytes) }),
	counter("wal_segments_total", "Segments of the log that were started.",
		func(r *reading) float64 { return float64(r.WAL.Segments) }),
	counter("wal_recycled_segments_total", "Segments of the log that were kept for reuse.",
		func(r *reading) float64 { return float64(r.WAL.Recycled) }),
}

var (
	alarm     = describe("alarm", "Members with an active alarm of this type.", "type")
	buildInfo = describe("build_info", "1, with the version that is running.", "version")
	saving    = describe("checkpoint_seconds", "Time to make a checkpoint.")
	walSyncs  = describe("wal_sync_seconds", "Time to write and sync a batch of the log.")
	suspected = describe("leader_suspicions_total", "Suspicions of a leader, by cause: hint, its connections have ended; pre-vote, another member suspects it; learnt-silence, it is silent for much longer than usual; obituary, its supervisor has reported its death.", "by")
	failOvers = describe("leader_fail_overs_total", "Leaders that were replaced, by cause: hint, pre-vote, silence (for an election timeout), learnt-silence (longer than usual), obituary (a supervisor's report), transfer, resignation (reported by the transferee).", "by")
	lastOver  = describe("last_fail_over_seconds", "Duration of each part of the last fail-over: detected, since the leader's last message; promise, until this member's promise ended and three heartbeats were missing; election; commit, of the next leader's first entry.", "by", "part")
	late      = describe("tick_late_seconds", "Delay of the raft loop's ticks, which send the heartbeats.")

	tlsReloads  = describe("tls_reloads_total", "Changes of TLS files that were loaded.", "side")
	tlsFailures = describe("tls_reload_failures_total", "Changes of TLS files that were invalid; the old ones stay in use.", "side")
	tlsNotAfter = describe("tls_certificate_not_after_seconds", "Expiry of the server certificate, in seconds since 1970.", "side")
)

// nodeCollector reads the member at each scrape.
type nodeCollector struct{ s *Server }

// Describe implements prometheus.Collector.
func (c nodeCollector) Describe(descs chan<- *prometheus.Desc) {
	for i := range families {
		descs <- families[i].desc
	}
	describeEtcd(descs)
	for _, d := range []*prometheus.Desc{alarm, buildInfo, saving, walSyncs, suspected, failOvers, lastOver, late, tlsReloads, tlsFailures, tlsNotAfter} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(out chan<- prometheus.Metric) {
	r := c.s.read()
	for i := range families {
		f := &families[i]
		out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(r))
	}
	collectEtcd(out, r)
	for _, t := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		raised := 0
		for _, m := range r.Alarms {
			if m.GetAlarm() == t {
				raised++
			}
		}
		out <- prometheus.MustNewConstMetric(alarm, prometheus.GaugeValue, float64(raised), t.String())
	}
	out <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, Version())
	out <- prometheus.MustNewConstHistogram(saving, r.Counts.Checkpoints, r.Counts.CheckpointTime.Seconds(), syncBuckets(r.Counts.CheckpointWithin))
	out <- prometheus.MustNewConstHistogram(walSyncs, r.WAL.Syncs, r.WAL.SyncTime.Seconds(), syncBuckets(r.WAL.SyncWithin))
	out <- prometheus.MustNewConstHistogram(late, r.Late.Count, r.Late.Sum.Seconds(), r.Late.Buckets())
	for _, cause := range []detector.Cause{detector.ConnClosed, detector.PreVote, detector.LongSilence, detector.ProcessDied} {
		out <- prometheus.MustNewConstMetric(suspected, prometheus.CounterValue, float64(r.Suspicions.Suspicions[cause]), cause.String())
	}
	collectFailOvers(out, &r.Suspicions)
	c.s.certs.collect(out)
}

func collectFailOvers(out chan<- prometheus.Metric, s *detector.Stats) {
	for cause, n := range s.FailOvers {
		out <- prometheus.MustNewConstMetric(failOvers, prometheus.CounterValue, float64(n), detector.Cause(cause).String())
	}
	if s.Last == (detector.FailOver{}) {
		return
	}
	for part, took := range map[string]time.Duration{"detected": s.Last.Detection, "promise": s.Last.Promise, "election": s.Last.Election, "commit": s.Last.Commit} {
		out <- prometheus.MustNewConstMetric(lastOver, prometheus.GaugeValue, took.Seconds(), s.Last.Cause.String(), part)
	}
}

// syncBuckets returns the cumulative counts, as Prometheus wants them, of a histogram with raftwal.SyncBounds.
func syncBuckets(within []uint64) map[float64]uint64 {
	c := durations.Counts{Bounds: raftwal.SyncBounds, Within: within}
	return c.Buckets()
}

// connFamily is a metric of the connections on the ports for clients.
type connFamily struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(connlimit.Stats) float64
}

var (
	pendingOf  = func(s connlimit.Stats) float64 { return float64(s.Pending) }
	rejectedOf = func(s connlimit.Stats) float64 { return float64(s.Rejected) }
	evictedOf  = func(s connlimit.Stats) float64 { return float64(s.Evicted) }
)

var connFamilies = []connFamily{
	{
		describe("client_open_connections", "Connections on all URLs except those for peers."), prometheus.GaugeValue,
		func(s connlimit.Stats) float64 { return float64(s.Open) },
	},
	{describe("client_pending_connections", "Connections that have not begun to speak HTTP or Redis yet."), prometheus.GaugeValue, pendingOf},
	{describe("client_rejected_connections_total", "Connections closed at once, because too many were open."), prometheus.CounterValue, rejectedOf},
	{describe("client_evicted_connections_total", "Pending connections closed for new ones."), prometheus.CounterValue, evictedOf},
	// Former names.
	{describe("client_arriving_connections", "Old name of kvnode_client_pending_connections."), prometheus.GaugeValue, pendingOf},
	{describe("client_shed_connections_total", "Old name of kvnode_client_rejected_connections_total."), prometheus.CounterValue, rejectedOf},
	{describe("client_cut_connections_total", "Old name of kvnode_client_evicted_connections_total."), prometheus.CounterValue, evictedOf},
}

// connCollector exports connFamilies.
type connCollector struct{ clients *listener.Endpoint }

// Describe implements prometheus.Collector.
func (c connCollector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
}

// Collect implements prometheus.Collector.
func (c connCollector) Collect(out chan<- prometheus.Metric) {
	s := c.clients.Connections()
	for _, f := range connFamilies {
		out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(s))
	}
}
