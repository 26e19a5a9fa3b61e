package transport

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderlease/go/internal/durations"
)

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
