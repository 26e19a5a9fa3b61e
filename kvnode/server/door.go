package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderlease/go/kvnode/internal/arrivals"
	"github.com/leaderlease/go/kvnode/server/listener"
)

// Bounds of clients that have not begun yet, on all listeners together. More
// guests: each costs up to 50 KB. Fewer: who needs longer to begin than that many
// others need to come is cut in a flood. More handshakes: each costs 0.3 ms of a
// processor. Fewer: an honest client at the address of one that fails is kept out.
var (
	strangeClients = arrivals.Bounds{Guests: 512, PerHost: 100, Total: 500}
	// Members send requests on to the leader. On this machine nobody needs a
	// port to use a processor up.
	knownClients = arrivals.Bounds{Guests: 128, PerHost: 400, Total: 800}
)

// newEntrance returns where clients come in.
func newEntrance(c *Config, certs certificates) *listener.Entrance {
	return listener.New(listener.Config{
		TLS: certs.client, MaxOpenStreams: c.MaxOpenStreams, OnlyGRPC: len(c.ListenClientHTTPURLs) > 0, Strangers: strangeClients, Known: knownClients, Logger: c.named(),
	})
}

var (
	openClients      = describe("client_open_connections", "Connections on the client URLs and those for HTTP and metrics.")
	arrivingClients  = describe("client_arriving_connections", "Those of them that have not begun with a request yet.")
	shedClients      = describe("client_shed_connections_total", "Connections closed at once because there was no place, or no file descriptor, for them.")
	cutClients       = describe("client_cut_connections_total", "Connections closed to make room, because they had said nothing for the longest.")
	throttledClients = describe("client_throttled_connections_total", "Connections closed because handshakes with their address have failed too often.")
)

// doorCollector exports how many connections have come to the client URLs, and their fate.
type doorCollector struct{ door *listener.Entrance }

// Describe implements prometheus.Collector.
func (c doorCollector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
}

// Collect implements prometheus.Collector.
func (c doorCollector) Collect(out chan<- prometheus.Metric) {
	s := c.door.Arrivals()
	out <- prometheus.MustNewConstMetric(openClients, prometheus.GaugeValue, float64(s.Open))
	out <- prometheus.MustNewConstMetric(arrivingClients, prometheus.GaugeValue, float64(s.Guests))
	out <- prometheus.MustNewConstMetric(shedClients, prometheus.CounterValue, float64(s.Shed))
	out <- prometheus.MustNewConstMetric(cutClients, prometheus.CounterValue, float64(s.Cut))
	out <- prometheus.MustNewConstMetric(throttledClients, prometheus.CounterValue, float64(s.Throttled))
}
