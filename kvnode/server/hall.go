package server

import (
	"context"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderlease/go/kvnode/internal/arrivals"
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

// otherFiles are the file descriptors that clients leave to the log, the store and
// the peers, with their hall.
const otherFiles = 256

// newHall returns where clients wait until they have begun.
func (e *entrance) newHall() *arrivals.Hall {
	c := arrivals.Config{Port: "client", Strangers: strangeClients, Reserve: knownClients, Known: e.knows, Logger: e.log}
	if files := maxFiles(); files > 0 {
		c.Open = max(files-otherFiles, files/2)
		c.Strangers.Guests, c.Reserve.Guests = min(c.Strangers.Guests, c.Open/2), min(c.Reserve.Guests, c.Open/4)
	}
	return arrivals.New(c)
}

// knows reports whether a host is this machine, by the address that it has for
// itself, or a member's.
func (e *entrance) knows(host string) bool {
	return host == "127.0.0.1" || host == "::1" || e.isMember(host)
}

func (e *entrance) isMember(host string) bool {
	node := e.members.Load()
	return node != nil && node.Knows(host)
}

// meet makes the guests among a server's connections introduce themselves with their first
// request. The server has a ConnContext.
func meet(p *http.Server) *http.Server {
	note := p.ConnContext
	p.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return arrivals.Of(c).Context(note(ctx, c)) }
	p.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateActive {
			arrivals.Of(c).Introduce() // if it was cut, the next read says so
		}
	}
	return p
}

var (
	openClients      = describe("client_open_connections", "Connections on the client URLs and those for HTTP and metrics.")
	arrivingClients  = describe("client_arriving_connections", "Those of them that have not begun with a request yet.")
	shedClients      = describe("client_shed_connections_total", "Connections closed at once because there was no place, or no file descriptor, for them.")
	cutClients       = describe("client_cut_connections_total", "Connections closed to make room, because they had said nothing for the longest.")
	throttledClients = describe("client_throttled_connections_total", "Connections closed because handshakes with their address have failed too often.")
)

// hallCollector exports how many connections have come to the client URLs, and their fate.
type hallCollector struct{ hall *arrivals.Hall }

// Describe implements prometheus.Collector.
func (c hallCollector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
}

// Collect implements prometheus.Collector.
func (c hallCollector) Collect(out chan<- prometheus.Metric) {
	s := c.hall.Stats()
	out <- prometheus.MustNewConstMetric(openClients, prometheus.GaugeValue, float64(s.Open))
	out <- prometheus.MustNewConstMetric(arrivingClients, prometheus.GaugeValue, float64(s.Guests))
	out <- prometheus.MustNewConstMetric(shedClients, prometheus.CounterValue, float64(s.Shed))
	out <- prometheus.MustNewConstMetric(cutClients, prometheus.CounterValue, float64(s.Cut))
	out <- prometheus.MustNewConstMetric(throttledClients, prometheus.CounterValue, float64(s.Throttled))
}
