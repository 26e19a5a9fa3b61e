package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
	"github.com/leaderlease/go/kvnode/server/listener"
)

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
