package transport

import "github.com/prometheus/client_golang/prometheus"

// Collector exports a Transport to Prometheus. It reads the counters at each
// scrape and keeps none of its own. Registering it is the caller's business.
// Labels are the IDs of peers that SetPeer has named, so they are bounded by the
// size of the cluster; whoever else connects is peer="unknown".
type Collector struct{ t *Transport }

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a Collector of t.
func NewCollector(t *Transport) *Collector { return &Collector{t} }

// streamFamily is a metric of each stream of each peer.
type streamFamily struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *StreamStatus) uint64
}

func newStreamFamily(kind prometheus.ValueType, name, help string, value func(*StreamStatus) uint64) streamFamily {
	return streamFamily{desc: desc(name, help, "peer", "stream"), kind: kind, value: value}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kvnode_transport_"+name, help, labels, nil)
}

var (
	streamFamilies = []streamFamily{
		newStreamFamily(prometheus.CounterValue, "sent_messages_total", "Messages written to the peer.", func(s *StreamStatus) uint64 { return s.Sent }),
		newStreamFamily(prometheus.CounterValue, "sent_bytes_total", "Bytes written to the peer, pings included.", func(s *StreamStatus) uint64 { return s.SentBytes }),
		newStreamFamily(prometheus.CounterValue, "lost_messages_total", "Messages to the peer that were not written.", func(s *StreamStatus) uint64 { return s.Lost }),
		newStreamFamily(prometheus.CounterValue, "received_messages_total", "Messages read from the peer.", func(s *StreamStatus) uint64 { return s.Received }),
		newStreamFamily(prometheus.CounterValue, "received_bytes_total", "Bytes read from the peer, pings included.", func(s *StreamStatus) uint64 { return s.ReceivedBytes }),
		newStreamFamily(prometheus.CounterValue, "connects_total", "Connections made to the peer.", func(s *StreamStatus) uint64 { return s.Connects }),
		newStreamFamily(prometheus.GaugeValue, "queued_messages", "Messages that wait or are being written.", func(s *StreamStatus) uint64 { return uint64(s.Queued) }),
		newStreamFamily(prometheus.GaugeValue, "queued_bytes", "Memory that queued messages hold, estimated.", func(s *StreamStatus) uint64 { return uint64(s.QueuedBytes) }),
		newStreamFamily(prometheus.GaugeValue, "connected", "Whether the stream to the peer is connected.", func(s *StreamStatus) uint64 { return oneIf(s.Connected) }),
	}

	rttDesc     = desc("round_trip_seconds", "Time in which the peer last answered a ping.", "peer")
	invalidDesc = desc("invalid_messages_total", "Messages of the peer that raft must not see.", "peer")
	refusedDesc = desc("refused_total", "Times that the peer has refused this member.", "peer", "reason")

	refusalsDesc    = desc("refusals_total", "Connections that this member has refused.", "reason")
	unaddressedDesc = desc("unaddressed_messages_total", "Messages to members that are no peers.")
	pendingDesc     = desc("pending_connections", "Connections that have not said hello yet.")
	evictedDesc     = desc("evicted_connections_total", "Pending connections closed for new ones.")
	arrivingDesc    = desc("arriving_connections", "Old name of kvnode_transport_pending_connections.")
	cutDesc         = desc("cut_connections_total", "Old name of kvnode_transport_evicted_connections_total.")
	garbledDesc     = desc("garbled_handshakes_total", "Connections that never said a readable hello.")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for i := range streamFamilies {
		descs <- streamFamilies[i].desc
	}
	for _, d := range []*prometheus.Desc{rttDesc, invalidDesc, refusedDesc, refusalsDesc, unaddressedDesc, pendingDesc, evictedDesc, arrivingDesc, cutDesc, garbledDesc} {
		descs <- d
	}
	describeEtcd(descs)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, p := range *c.t.peers.Load() {
		p.collect(metrics)
	}
	totals := &c.t.totals
	for i, reason := range reasons {
		metrics <- counter(refusalsDesc, totals.refusals[i].Load(), reason)
	}
	metrics <- counter(invalidDesc, totals.strangers.invalid.Load(), "unknown")
	metrics <- counter(unaddressedDesc, totals.unaddressed.Load())
	conns := c.t.port.Stats()
	for _, d := range []*prometheus.Desc{pendingDesc, arrivingDesc} {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(conns.Pending))
	}
	for _, d := range []*prometheus.Desc{evictedDesc, cutDesc} {
		metrics <- counter(d, conns.Evicted)
	}
	metrics <- counter(garbledDesc, totals.garbled.Load())
}

func (p *peer) collect(metrics chan<- prometheus.Metric) {
	s := p.status()
	for i := range s.Streams {
		for j := range streamFamilies {
			f := &streamFamilies[j]
			metrics <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(f.value(&s.Streams[i])), p.name, s.Streams[i].Name)
		}
	}
	metrics <- prometheus.MustNewConstMetric(rttDesc, prometheus.GaugeValue, s.RTT.Seconds(), p.name)
	metrics <- counter(invalidDesc, s.Invalid, p.name)
	for i, reason := range reasons {
		metrics <- counter(refusedDesc, p.counts.refusals[i].Load(), p.name, reason)
	}
	p.collectEtcd(metrics, &s)
}

func counter(d *prometheus.Desc, v uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func oneIf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
