package transport

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/leaderlease/go/internal/durations"
)

// PeerStatus is the state of the links to one peer.
type PeerStatus struct {
	ID uint64
	// Connected is set while this member's control stream to the peer is connected.
	// Since is the time of the last change.
	Connected  bool
	Since      time.Time
	LastError  string // of the control stream since it last connected or, if empty, of the bulk stream
	Hello      Hello  // the last one of the peer
	Sent, Lost uint64 // messages
	RTT        time.Duration
	Streams    []StreamStatus
	// Invalid counts invalid messages of the peer.
	Invalid uint64
}

// StreamStatus is the state of one stream to and from a peer.
type StreamStatus struct {
	Name      string // control, bulk, snapshot
	Connected bool   // for snapshots: one is being sent
	// Sent and Received count messages, SentBytes and ReceivedBytes their bytes on
	// the wire. Lost counts messages that were not written.
	Sent, SentBytes, Lost   uint64
	Received, ReceivedBytes uint64
	// Connects counts how often this member has connected to the peer.
	Connects uint64
	// Queued counts messages that wait or are being written. QueuedBytes estimates
	// their memory.
	Queued, QueuedBytes int
}

// Peers returns the state of all links, by ID.
func (t *Transport) Peers() []PeerStatus {
	peers := *t.peers.Load()
	all := make([]PeerStatus, 0, len(peers))
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		all = append(all, peers[id].status())
	}
	return all
}

func (p *peer) status() PeerStatus {
	c := p.links[control].status()
	s := PeerStatus{
		ID: p.id, Connected: c.connected, Since: c.since, LastError: c.lastErr,
		Hello: c.hello, RTT: c.rtt, Invalid: p.counts.invalid.Load(),
	}
	if s.LastError == "" {
		s.LastError = p.links[bulk].status().lastErr
	}
	for kind := range numStreams {
		one := p.stream(kind)
		s.Sent += one.Sent
		s.Lost += one.Lost
		s.Streams = append(s.Streams, one)
	}
	return s
}

func (p *peer) stream(kind stream) StreamStatus {
	out, in := &p.counts.out[kind], &p.counts.in[kind]
	s := StreamStatus{
		Name: kind.String(),
		Sent: out.sent.Load(), SentBytes: out.sentBytes.Load(), Lost: out.lost.Load(),
		Received: in.received.Load(), ReceivedBytes: in.receivedBytes.Load(),
		Connects: out.connects.Load(),
	}
	if kind == snapshots {
		s.Connected = p.sending.Load()
		return s
	}
	s.Connected = p.links[kind].status().connected
	s.Queued, s.QueuedBytes = p.links[kind].queue.usage()
	return s
}

func (l *link) status() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state
}

// counts holds the counters of one peer. All members that are not peers share
// one, so that they cannot use up memory.
type counts struct {
	out [numStreams]outCounts
	in  [numStreams]inCounts
	// invalid counts invalid messages of the peer.
	invalid atomic.Uint64
	// refusals counts the peer's refusals by index in reasons.
	refusals [len(reasons)]atomic.Uint64
	// roundTrips has the times between pings and pongs. It is nil in
	// totals.unknown.
	roundTrips *durations.Histogram
}

// outCounts counts what is sent on one stream.
type outCounts struct {
	sent, sentBytes, lost atomic.Uint64
	connects              atomic.Uint64
}

// inCounts counts what arrives on one stream.
type inCounts struct {
	received, receivedBytes atomic.Uint64
}

func (c *counts) refused(reason string) { c.refusals[reasonIndex(reason)].Add(1) }

// totals holds the counters that belong to no peer.
type totals struct {
	unknown counts // of members that are not peers
	// unaddressed counts messages to members that are not peers.
	unaddressed atomic.Uint64
	// garbled counts connections that never sent a readable hello. Package connlimit
	// counts evicted connections.
	garbled atomic.Uint64
	// refusals counts this member's refusals by index in reasons.
	refusals [len(reasons)]atomic.Uint64
	// connectLog limits log lines about peers that have connected, logLimit other lines.
	logLimit, connectLog rate.Sometimes
}

// newLogLimit returns a limit for a log line that may repeat for ever.
func newLogLimit() rate.Sometimes { return rate.Sometimes{First: 10, Interval: 10 * time.Second} }

func reasonIndex(reason string) int {
	if i := slices.Index(reasons[:], reason); i >= 0 {
		return i
	}
	return len(reasons) - 1
}

// countsOf returns the counters for a member, which need not be a peer.
func (t *Transport) countsOf(id uint64) *counts {
	if p := t.peer(id); p != nil {
		return &p.counts
	}
	return &t.totals.unknown
}

// Collector exports a Transport to Prometheus. It reads the counters at each scrape. The caller registers it.
// Labels are the IDs of peers: members, and a few unregistered ones. Of the others it counts invalid messages, as
// peer="unknown".
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

	rttDesc     = desc("round_trip_seconds", "Time from the last ping to its answer; before the first ping, the time to connect.", "peer")
	invalidDesc = desc("invalid_messages_total", "Invalid messages of the peer, which raft did not get.", "peer")
	refusedDesc = desc("refused_total", "Times that the peer refused this member.", "peer", "reason")

	refusalsDesc    = desc("refusals_total", "Connections that this member refused.", "reason")
	unaddressedDesc = desc("unaddressed_messages_total", "Messages to members that are not peers.")
	pendingDesc     = desc("pending_connections", "Connections that have not sent a hello yet.")
	evictedDesc     = desc("evicted_connections_total", "Pending connections closed for new ones.")
	arrivingDesc    = desc("arriving_connections", "Old name of kvnode_transport_pending_connections.")
	cutDesc         = desc("cut_connections_total", "Old name of kvnode_transport_evicted_connections_total.")
	garbledDesc     = desc("garbled_handshakes_total", "Connections that never sent a readable hello.")
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
	metrics <- counter(invalidDesc, totals.unknown.invalid.Load(), "unknown")
	metrics <- counter(unaddressedDesc, totals.unaddressed.Load())
	conns := c.t.connLimit.Stats()
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
			metrics <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(f.value(&s.Streams[i])), p.hexID, s.Streams[i].Name)
		}
	}
	metrics <- prometheus.MustNewConstMetric(rttDesc, prometheus.GaugeValue, s.RTT.Seconds(), p.hexID)
	metrics <- counter(invalidDesc, s.Invalid, p.hexID)
	for i, reason := range reasons {
		metrics <- counter(refusedDesc, p.counts.refusals[i].Load(), p.hexID, reason)
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

// The metrics of peers with etcd's names and labels, for dashboards and alerts that
// were written for etcd. They add up all streams of a peer.
var (
	etcdSent     = etcdDesc("sent_bytes_total", "The total number of bytes sent to peers.", "To")
	etcdReceived = etcdDesc("received_bytes_total", "The total number of bytes received from peers.", "From")
	etcdFailures = etcdDesc("sent_failures_total", "The total number of messages to peers that were not sent.", "To")
	etcdRTT      = etcdDesc("round_trip_time_seconds", "Round-Trip-Time histogram between peers.", "To")
)

func etcdDesc(name, help, label string) *prometheus.Desc {
	return prometheus.NewDesc("etcd_network_peer_"+name, help, []string{label}, nil)
}

// roundTripBounds are the bounds of etcd's histogram.
var roundTripBounds = durations.Doubling(100*time.Microsecond, 16)

func describeEtcd(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{etcdSent, etcdReceived, etcdFailures, etcdRTT} {
		descs <- d
	}
}

func (p *peer) collectEtcd(metrics chan<- prometheus.Metric, s *PeerStatus) {
	var sent, received uint64
	for i := range s.Streams {
		sent += s.Streams[i].SentBytes
		received += s.Streams[i].ReceivedBytes
	}
	rtts := p.counts.roundTrips.Load()
	metrics <- counter(etcdSent, sent, p.hexID)
	metrics <- counter(etcdReceived, received, p.hexID)
	metrics <- counter(etcdFailures, s.Lost, p.hexID)
	metrics <- prometheus.MustNewConstHistogram(etcdRTT, rtts.Count, rtts.Sum.Seconds(), rtts.Buckets(), p.hexID)
}
