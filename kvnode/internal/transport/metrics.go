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

// PeerStatus is what is known of the links to one peer.
type PeerStatus struct {
	ID uint64
	// Connected is whether this member's control stream to the peer is up, Since
	// when that began.
	Connected  bool
	Since      time.Time
	LastError  string // of the newest attempt or connection that failed, any stream
	Hello      Hello  // what the peer said last
	Sent, Lost uint64 // messages
	RTT        time.Duration
	Streams    []StreamStatus
	// Invalid counts the peer's messages that were refused.
	Invalid uint64
}

// StreamStatus is what is known of one stream to, and from, a peer.
type StreamStatus struct {
	Name      string // control, bulk, snapshot
	Connected bool
	// Sent and Received count messages; SentBytes and ReceivedBytes what went over
	// the wire for them. Lost are messages that were not written.
	Sent, SentBytes, Lost   uint64
	Received, ReceivedBytes uint64
	// Connects counts how often this member has connected to the peer.
	Connects uint64
	// Queued messages wait or are being written; QueuedBytes is an estimate of
	// the memory they hold.
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
	s.Queued, s.QueuedBytes = p.links[kind].queue.held()
	return s
}

func (l *link) status() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state
}

// counts are what is counted of one peer. Counters of whoever is no peer are
// kept together, so that strangers cannot grow memory.
type counts struct {
	out [numStreams]outCounts
	in  [numStreams]inCounts
	// invalid counts messages that Validate refused, or that did not decode;
	// refusals count by reason what the peer said.
	invalid    atomic.Uint64
	refusals   [len(reasons)]atomic.Uint64 // by index in reasons
	obituaries atomic.Uint64
	// roundTrips are how long the peer took to answer pings; nil for strangers.
	roundTrips *durations.Histogram
}

// outCounts count what is sent on one stream.
type outCounts struct {
	sent, sentBytes, lost atomic.Uint64
	connects              atomic.Uint64
}

// inCounts count what arrives on one stream.
type inCounts struct {
	received, receivedBytes atomic.Uint64
}

func (c *counts) refused(reason string) { c.refusals[reasonIndex(reason)].Add(1) }

// totals are what is counted of no peer in particular.
type totals struct {
	strangers counts
	// unaddressed counts messages to nobody that SetPeer has named.
	unaddressed atomic.Uint64
	// garbled counts connections that never said a readable hello. What the hall
	// turned away it counts itself.
	garbled atomic.Uint64
	// refusals count by reason what this member said; complain limits what is
	// logged about it.
	refusals [len(reasons)]atomic.Uint64
	complain rate.Sometimes
	came     rate.Sometimes // the same for connections of peers
}

// seldom limits what is logged of something that may repeat for ever.
func seldom() rate.Sometimes { return rate.Sometimes{First: 10, Interval: 10 * time.Second} }

func reasonIndex(reason string) int {
	if i := slices.Index(reasons[:], reason); i >= 0 {
		return i
	}
	return len(reasons) - 1
}

// countsOf returns the counters of a member.
func (t *Transport) countsOf(id uint64) *counts {
	if p := t.peer(id); p != nil {
		return &p.counts
	}
	return &t.totals.strangers
}

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

// What etcd exports of its peers, under its names and labels: dashboards and alerts that
// were made for it find them. All streams of a peer are one here.
var (
	etcdSent     = etcdDesc("sent_bytes_total", "The total number of bytes sent to peers.", "To")
	etcdReceived = etcdDesc("received_bytes_total", "The total number of bytes received from peers.", "From")
	etcdFailures = etcdDesc("sent_failures_total", "The total number of messages to peers that were not sent.", "To")
	etcdRTT      = etcdDesc("round_trip_time_seconds", "Round-Trip-Time histogram between peers.", "To")
)

func etcdDesc(name, help, label string) *prometheus.Desc {
	return prometheus.NewDesc("etcd_network_peer_"+name, help, []string{label}, nil)
}

// roundTripBounds are etcd's.
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
	metrics <- counter(etcdSent, sent, p.name)
	metrics <- counter(etcdReceived, received, p.name)
	metrics <- counter(etcdFailures, s.Lost, p.name)
	metrics <- prometheus.MustNewConstHistogram(etcdRTT, rtts.Count, rtts.Sum.Seconds(), rtts.Buckets(), p.name)
}
