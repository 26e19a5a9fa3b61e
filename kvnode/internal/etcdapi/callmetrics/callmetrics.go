package callmetrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
)

var (
	ofMethod    = []string{"grpc_type", "grpc_service", "grpc_method"}
	startedDesc = prometheus.NewDesc("grpc_server_started_total", "Total number of RPCs started on the server.", ofMethod, nil)
	handledDesc = prometheus.NewDesc("grpc_server_handled_total", "Total number of RPCs completed on the server, regardless of success or failure.",
		[]string{"grpc_type", "grpc_service", "grpc_method", "grpc_code"}, nil)
	receivedDesc = prometheus.NewDesc("grpc_server_msg_received_total", "Total number of RPC stream messages received on the server.", ofMethod, nil)
	sentDesc     = prometheus.NewDesc("grpc_server_msg_sent_total", "Total number of gRPC stream messages sent by the server.", ofMethod, nil)
	tookDesc     = prometheus.NewDesc("grpc_server_handling_seconds", "Histogram of response latency (seconds) of gRPC that had been application-level handled by the server.", ofMethod, nil)
)

// Metrics are those of all methods. It may be used by any number of goroutines.
type Metrics struct {
	histogram bool // immutable
	// methods are by full name. The map is replaced whole, under mu.
	methods atomic.Pointer[map[string]*Method]
	mu      sync.Mutex
}

// New returns metrics of no method yet. With histogram they have how long calls took, too,
// which is some twenty series for each method.
func New(histogram bool) *Metrics {
	m := &Metrics{histogram: histogram}
	m.methods.Store(&map[string]*Method{})
	return m
}

// InitializeMetrics makes the series of all methods that a server has, so that they are there
// before the first call.
func (m *Metrics) InitializeMetrics(server reflection.ServiceInfoProvider) {
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			m.method("/"+service+"/"+method.Name, kindOf(method.IsClientStream, method.IsServerStream))
		}
	}
}

// Unary returns the metrics of a unary method, which has a full name such as /service/method.
func (m *Metrics) Unary(fullMethod string) *Method { return m.method(fullMethod, unary) }

func (m *Metrics) method(fullMethod, kind string) *Method {
	if of := (*m.methods.Load())[fullMethod]; of != nil {
		return of
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.methods.Load())
	of := all[fullMethod]
	if of == nil {
		service, method, ok := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
		if !ok {
			service, method = "unknown", "unknown"
		}
		of = newMethod(kind, service, method, m.histogram)
		all[fullMethod] = of
		m.methods.Store(&all)
	}
	return of
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{startedDesc, handledDesc, receivedDesc, sentDesc} {
		descs <- d
	}
	if m.histogram {
		descs <- tookDesc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, of := range *m.methods.Load() {
		count := func(d *prometheus.Desc, n uint64, code ...string) {
			labels := append([]string{of.kind, of.service, of.name}, code...)
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
		}
		c := of.load()
		count(startedDesc, c.started)
		count(receivedDesc, c.received)
		count(sentDesc, c.sent)
		for code, n := range c.handled {
			count(handledDesc, n, codes.Code(code).String())
		}
		if of.took != nil {
			t := of.took.Load()
			out <- prometheus.MustNewConstHistogram(tookDesc, t.Count, t.Sum.Seconds(), t.Buckets(), of.kind, of.service, of.name)
		}
	}
}
