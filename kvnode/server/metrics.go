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
	"github.com/leaderlease/go/kvnode/internal/etcdapi"
	"github.com/leaderlease/go/kvnode/internal/listener"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/watch"
	"github.com/leaderlease/go/kvnode/internal/ttl"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/metrics"
	"github.com/leaderlease/go/raftwal"
)

// leaseGroup is the label of the only Raft group in leaderlease's metrics.
const leaseGroup = "kvnode"

// newRegistry returns everything that is exported.
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

// reading is a member at the moment of a scrape.
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
	ttl                 ttl.Stats
	ttlLeases           int
	applies             []kvnode.OpTimes
	slowApplies         uint64
	requests            etcdapi.RequestStats
	ops                 store.Ops
	watches             watch.Stats
}

func (s *Server) read() *reading {
	kept := s.node.Store()
	r := &reading{
		Status: s.node.Status(), revision: kept.Revision(), compacted: kept.CompactRevision(),
		changes: s.changes.Load(), ready: s.readyNow(),
		ttl: s.node.TTLStats(), ttlLeases: kept.CountTTLLeases(),
	}
	if s.cfg.DroppedLogLines != nil {
		r.droppedLogLines = s.cfg.DroppedLogLines()
	}
	r.applies, r.slowApplies = s.node.ApplyTimes()
	r.requests, r.ops, r.watches = s.api.RequestStats(), kept.Ops(), s.node.Watch().Stats()
	r.openStreams, r.refusedStreams = s.clients.Streams()
	r.dbSize, r.dbInUse = etcdapi.Size(kept)
	r.dbQuota = s.cfg.API.QuotaBytes
	r.dbUnsaved = kept.Unsaved()
	return r
}

// family is one metric without labels.
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

// families is what describes a member; leaderlease_… describes its lease, and
// kvnode_transport_… its links to the peers.
var families = []family{
	gauge("ready", "1 while the checks of /readyz succeed, within a second, else 0.",
		func(r *reading) float64 { return boolValue(r.ready) }),
	gauge("has_leader", "1 if a leader is known, else 0.",
		func(r *reading) float64 { return boolValue(r.Leader != 0) }),
	gauge("is_leader", "1 if this member leads, else 0.",
		func(r *reading) float64 { return boolValue(r.Leader != 0 && r.Leader == r.ID) }),
	gauge("is_learner", "1 if this member is a learner, else 0.",
		func(r *reading) float64 { return boolValue(r.Learner) }),
	counter("leader_changes_total", "Leaders that this member has seen since its start.",
		func(r *reading) float64 { return float64(r.changes) }),
	counter("leader_false_alarms_total", "Suspicions of a leader that a sign of life has ended.",
		func(r *reading) float64 { return float64(r.Suspicions.FalseAlarms) }),
	counter("leader_forgotten_total", "Times that a leader was to be forgotten, since it was suspected and the promise to it had ended.",
		func(r *reading) float64 { return float64(r.Suspicions.Forgets) }),
	gauge("leader_silence_limit_seconds", "Silence of the leader that this member takes for its end: the election timeout until it has learnt better, 0 if it leads or does not learn.",
		func(r *reading) float64 { return r.Suspicions.Limit.Seconds() }),
	gauge("term", "Newest term that this member knows.",
		func(r *reading) float64 { return float64(r.Term) }),
	gauge("commit_index", "Newest index known to be committed.",
		func(r *reading) float64 { return float64(r.Commit) }),
	gauge("applied_index", "Newest index whose effect is visible to readers.",
		func(r *reading) float64 { return float64(r.Applied) }),
	gauge("last_index", "Last index of the log.",
		func(r *reading) float64 { return float64(r.Last) }),
	gauge("revision", "Newest revision that is visible to readers.",
		func(r *reading) float64 { return float64(r.revision) }),
	gauge("compact_revision", "Newest revision that was compacted.",
		func(r *reading) float64 { return float64(r.compacted) }),
	gauge("format", "Format of the cluster: what it may use.",
		func(r *reading) float64 { return float64(r.Format) }),
	gauge("format_newest", "Newest format that this member's version knows.",
		func(r *reading) float64 { return float64(r.NewestFormat) }),
	gauge("format_keepers", "Members that keep the cluster's format from being that: of an older version, or not connected. The status names them.",
		func(r *reading) float64 { return float64(len(r.FormatKeptBy)) }),
	gauge("ttl_leases", "TTL leases that clients hold.",
		func(r *reading) float64 { return float64(r.ttlLeases) }),
	gauge("ttl_revoking", "TTL leases whose time is over and whose revocation is under way, on the leader.",
		func(r *reading) float64 { return float64(r.ttl.Revoking) }),
	counter("ttl_renewals_total", "Keep-alives that this member has answered as the leader.",
		func(r *reading) float64 { return float64(r.ttl.Renewals) }),
	counter("ttl_expirations_total", "TTL leases that this member, as the leader, has revoked for want of keep-alives.",
		func(r *reading) float64 { return float64(r.ttl.Expirations) }),
	counter("ttl_checkpoints_total", "Times that this member, as the leader, has had the remaining time of a TTL lease replicated.",
		func(r *reading) float64 { return float64(r.ttl.Checkpoints) }),
	gauge("client_open_streams", "Requests, watches and waits under way, over gRPC and over HTTP.",
		func(r *reading) float64 { return float64(r.openStreams) }),
	counter("client_refused_streams_total", "Those that were refused because their connection had as many as all leave free.",
		func(r *reading) float64 { return float64(r.refusedStreams) }),
	gauge("proposals_pending", "Proposals of this member's clients that are under way.",
		func(r *reading) float64 { return float64(r.Waiting) }),
	counter("proposals_failed_total", "Proposals of this member of which nothing became, or nobody knows what.",
		func(r *reading) float64 { return float64(r.Counts.FailedProposals) }),
	counter("proposals_voided_total", "Attempts of this member's that no leader replicated in their term; what they were for was proposed again.",
		func(r *reading) float64 { return float64(r.Counts.VoidedProposals) }),
	counter("reads_failed_total", "Linearizable reads of this member that were not served, but for those whose client left.",
		func(r *reading) float64 { return float64(r.Counts.FailedReads) }),
	counter("malformed_entries_total", "Entries without effect since they do not decode, in the log or in what peers forward: a peer is faulty, or not one.",
		func(r *reading) float64 { return float64(r.Counts.Malformed) }),
	counter("checkpoint_failures_total", "Checkpoints that could not be made.",
		func(r *reading) float64 { return float64(r.Counts.FailedCheckpoints) }),
	gauge("checkpoint_max_seconds", "Longest checkpoint since the start.",
		func(r *reading) float64 { return r.Counts.MaxCheckpointTime.Seconds() }),
	gauge("disk_full", "1 if writes are refused until there is room on the disk, else 0.",
		func(r *reading) float64 { return boolValue(r.DiskFull) }),
	gauge("checkpoint_index", "Index of the newest durable checkpoint: a restart replays the log after it.",
		func(r *reading) float64 { return float64(r.Checkpoint.Index) }),
	gauge("checkpoint_revision", "Revision of the newest durable checkpoint.",
		func(r *reading) float64 { return float64(r.Checkpoint.Revision) }),
	gauge("db_quota_bytes", "What db_size_bytes must stay below, the quota; negative if there is none.",
		func(r *reading) float64 { return float64(r.dbQuota) }),
	gauge("db_size_bytes", "Size of the store as the quota counts it: of the checkpoint's file, once it has what is not saved yet.",
		func(r *reading) float64 { return float64(r.dbSize) }),
	gauge("db_unsaved_bytes", "How much of it no checkpoint has yet, estimated.",
		func(r *reading) float64 { return float64(r.dbUnsaved) }),
	gauge("db_in_use_bytes", "How much of it is in use: a defragmentation gives the rest back.",
		func(r *reading) float64 { return float64(r.dbInUse) }),
	gauge("wal_sync_max_seconds", "Longest write and sync of the log since the start.",
		func(r *reading) float64 { return r.WAL.MaxSyncTime.Seconds() }),
	gauge("tick_late_max_seconds", "Latest tick of the raft loop since the start. Beyond the election timeout the leader is not one any more.",
		func(r *reading) float64 { return r.Late.Max.Seconds() }),
	counter("log_lines_dropped_total", "Lines that an output of this member's log has not got: it was blocked, or failed.",
		func(r *reading) float64 { return float64(r.droppedLogLines) }),
	counter("wal_directory_syncs_total", "Syncs of the log's directory.",
		func(r *reading) float64 { return float64(r.WAL.DirSyncs) }),
	counter("wal_entries_total", "Entries written to the log.",
		func(r *reading) float64 { return float64(r.WAL.Entries) }),
	counter("wal_written_bytes_total", "Bytes written to the log.",
		func(r *reading) float64 { return float64(r.WAL.Bytes) }),
	counter("wal_segments_total", "Segments of the log that were begun.",
		func(r *reading) float64 { return float64(r.WAL.Segments) }),
	counter("wal_recycled_segments_total", "Segments of the log that were kept for further use.",
		func(r *reading) float64 { return float64(r.WAL.Recycled) }),
}

var (
	alarm     = describe("alarm", "Members that have raised the alarm of this type.", "type")
	buildInfo = describe("build_info", "1, with the version that is running.", "version")
	saving    = describe("checkpoint_seconds", "Time to make a checkpoint.")
	walSyncs  = describe("wal_sync_seconds", "Time to write and sync a batch of the log.")
	suspected = describe("leader_suspicions_total", "Suspicions of a leader, by what they began with: hint, its connections have ended; pre-vote, another member suspects it; learnt-silence, it is silent for much longer than it has been of late; obituary, its guardian says that it is dead.", "by")
	failOvers = describe("leader_fail_overs_total", "Leaders that were replaced by another, by what it began with: hint, pre-vote, silence (for an election timeout), learnt-silence (longer than usual), obituary (a guardian's), transfer, resignation (told by who was asked).", "by")
	lastOver  = describe("last_fail_over_seconds", "How long each part of the last one took: detected, from the leader's last sign of life on; promise, that bound this member then; election; commit, of the next leader's first entry.", "by", "part")
	late      = describe("tick_late_seconds", "How late the raft loop was at its ticks, which make the heartbeats.")

	tlsReloads  = describe("tls_reloads_total", "Changes of TLS files that were taken over.", "side")
	tlsFailures = describe("tls_reload_failures_total", "Changes of TLS files that made no sense; the old ones stay in use.", "side")
	tlsNotAfter = describe("tls_certificate_not_after_seconds", "When the certificate for those who connect ends, in seconds since 1970.", "side")
)

// nodeCollector reads the member at each scrape and keeps no figures.
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
	for _, way := range []detector.Way{detector.Hint, detector.PreVote, detector.LearntSilence, detector.Obituary} {
		out <- prometheus.MustNewConstMetric(suspected, prometheus.CounterValue, float64(r.Suspicions.Hints[way]), way.String())
	}
	collectFailOvers(out, &r.Suspicions)
	c.s.certs.collect(out)
}

func collectFailOvers(out chan<- prometheus.Metric, s *detector.Stats) {
	for way, n := range s.FailOvers {
		out <- prometheus.MustNewConstMetric(failOvers, prometheus.CounterValue, float64(n), detector.Way(way).String())
	}
	if s.Last == (detector.FailOver{}) {
		return
	}
	for part, took := range map[string]time.Duration{"detected": s.Last.Hint, "promise": s.Last.Promise, "election": s.Last.Election, "commit": s.Last.Commit} {
		out <- prometheus.MustNewConstMetric(lastOver, prometheus.GaugeValue, took.Seconds(), s.Last.Way.String(), part)
	}
}

// syncBuckets returns the cumulative counts that Prometheus wants of what has the bounds of the
// log.
func syncBuckets(within []uint64) map[float64]uint64 {
	c := durations.Counts{Bounds: raftwal.SyncBounds, Within: within}
	return c.Buckets()
}

// maxPendingClients is 0, the default of package listener, except in tests.
var maxPendingClients int

func newClients(c *Config, certs certificates) *listener.Clients {
	return listener.NewClients(listener.Config{
		TLS: certs.client, MaxOpenStreams: c.MaxOpenStreams, OnlyGRPC: len(c.ListenClientHTTPURLs) > 0,
		MaxPending: maxPendingClients, Logger: c.named(),
	})
}

// connFamily is a metric of the connections to the ports for clients.
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
		describe("client_open_connections", "Connections on the client URLs and those for HTTP and metrics."), prometheus.GaugeValue,
		func(s connlimit.Stats) float64 { return float64(s.Open) },
	},
	{describe("client_pending_connections", "Those of them that have not begun with a request."), prometheus.GaugeValue, pendingOf},
	{describe("client_rejected_connections_total", "Connections closed at once, for want of file descriptors."), prometheus.CounterValue, rejectedOf},
	{describe("client_evicted_connections_total", "Pending connections closed for new ones."), prometheus.CounterValue, evictedOf},
	// Names of the release before.
	{describe("client_arriving_connections", "Old name of kvnode_client_pending_connections."), prometheus.GaugeValue, pendingOf},
	{describe("client_shed_connections_total", "Old name of kvnode_client_rejected_connections_total."), prometheus.CounterValue, rejectedOf},
	{describe("client_cut_connections_total", "Old name of kvnode_client_evicted_connections_total."), prometheus.CounterValue, evictedOf},
}

// connCollector exports connFamilies.
type connCollector struct{ clients *listener.Clients }

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
