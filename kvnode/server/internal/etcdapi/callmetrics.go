package etcdapi

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/durations"
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

// CallMetrics counts gRPC calls for Prometheus. Names and labels are those of go-grpc-middleware's
// package prometheus, which etcd uses, so dashboards for etcd work. That package looks a counter up
// by its labels three or four times per call, which takes a third of the time of a read under the
// lease on a fastkv stream. Here a method's striped counters are found by its name.
//
// It is safe for concurrent use.
type CallMetrics struct {
	histogram bool // immutable
	// methods are the counters by full method name. The map is replaced under mu, never modified.
	methods atomic.Pointer[map[string]*methodCalls]
	mu      sync.Mutex
}

// NewCallMetrics returns empty metrics. histogram adds durations, which are 14 series per method.
func NewCallMetrics(histogram bool) *CallMetrics {
	m := &CallMetrics{histogram: histogram}
	m.methods.Store(&map[string]*methodCalls{})
	return m
}

// InitializeMetrics creates the series of all methods of a server, so that they exist before the
// first call.
func (m *CallMetrics) InitializeMetrics(server reflection.ServiceInfoProvider) {
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			m.method("/"+service+"/"+method.Name, kindOf(method.IsClientStream, method.IsServerStream))
		}
	}
}

// unaryMethod returns the counters of a unary method with a full name such as /service/method.
func (m *CallMetrics) unaryMethod(fullMethod string) *methodCalls { return m.method(fullMethod, unary) }

func (m *CallMetrics) method(fullMethod, kind string) *methodCalls {
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
		of = newMethodCalls(kind, service, method, m.histogram)
		all[fullMethod] = of
		m.methods.Store(&all)
	}
	return of
}

// Describe implements prometheus.Collector.
func (m *CallMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{startedDesc, handledDesc, receivedDesc, sentDesc} {
		descs <- d
	}
	if m.histogram {
		descs <- tookDesc
	}
}

// Collect implements prometheus.Collector.
func (m *CallMetrics) Collect(out chan<- prometheus.Metric) {
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

// The kinds of methods.
const (
	unary        = "unary"
	clientStream = "client_stream"
	serverStream = "server_stream"
	bidiStream   = "bidi_stream"
)

func kindOf(client, server bool) string {
	switch {
	case client && server:
		return bidiStream
	case client:
		return clientStream
	case server:
		return serverStream
	default:
		return unary
	}
}

// numCodes is the number of gRPC's codes. Other codes count as Unknown.
const numCodes = int(codes.Unauthenticated) + 1

// callBounds are Prometheus's default buckets, as in etcd.
var callBounds = []time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// methodCalls counts the calls of one method without allocating.
type methodCalls struct {
	kind, service, name string             // labels
	took                *durations.Striped // nil without a histogram
	cells               []callCell         // stripes
}

// callCell has the counts of one stripe. A unary method counts no messages: it receives one per call,
// and sends one per successful call.
type callCell struct {
	started, received, sent atomic.Uint64
	handled                 [numCodes]atomic.Uint64
	_                       [32]byte // a callCell is three cache lines
}

func newMethodCalls(kind, service, name string, histogram bool) *methodCalls {
	of := &methodCalls{kind: kind, service: service, name: name, cells: make([]callCell, durations.Stripes)}
	if histogram {
		of.took = durations.NewStriped(callBounds)
	}
	return of
}

func (of *methodCalls) here() *callCell { return &of.cells[durations.Stripe()] }

// Begin counts the start of a call. Pass the result to End.
func (of *methodCalls) Begin() (begun time.Time) {
	of.here().started.Add(1)
	if of.took != nil {
		begun = time.Now()
	}
	return begun
}

// End counts the end of a call.
func (of *methodCalls) End(begun time.Time, err error) {
	of.here().handled[codeOf(err)].Add(1)
	if of.took != nil {
		of.took.Note(time.Since(begun))
	}
}

// Done counts n successful calls of a unary method. Call Note for each of them.
func (of *methodCalls) Done(n uint64) {
	if n > 0 {
		at := of.here()
		at.started.Add(n)
		at.handled[codes.OK].Add(n)
	}
}

// Note records the duration of a call that Done counts.
func (of *methodCalls) Note(took time.Duration) {
	if of.took != nil {
		of.took.Note(took)
	}
}

func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // as gRPC does
	}
	if int(st.Code()) >= numCodes {
		return codes.Unknown
	}
	return st.Code()
}

// callCounts are the sums of all cells.
type callCounts struct {
	started, received, sent uint64
	handled                 [numCodes]uint64
}

// load returns the counts. They are read one after the other, not at one moment.
func (of *methodCalls) load() (c callCounts) {
	for i := range of.cells {
		at := &of.cells[i]
		c.started += at.started.Load()
		c.received += at.received.Load()
		c.sent += at.sent.Load()
		for code := range c.handled {
			c.handled[code] += at.handled[code].Load()
		}
	}
	if of.kind == unary {
		c.received, c.sent = c.started, c.handled[codes.OK]
	}
	return c
}

// UnaryServerInterceptor counts unary calls. It must be the first interceptor.
func (m *CallMetrics) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		of := m.unaryMethod(info.FullMethod)
		begun := of.Begin()
		resp, err := handle(ctx, req)
		of.End(begun, err)
		return resp, err
	}
}

// StreamServerInterceptor counts streams and their messages.
func (m *CallMetrics) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		of := m.method(info.FullMethod, kindOf(info.IsClientStream, info.IsServerStream))
		begun := of.Begin()
		err := handle(srv, &countedStream{stream, of})
		of.End(begun, err)
		return err
	}
}

// countedStream is a stream that counts its messages.
type countedStream struct {
	grpc.ServerStream
	of *methodCalls
}

// SendMsg implements grpc.ServerStream.
func (c *countedStream) SendMsg(m any) error {
	err := c.ServerStream.SendMsg(m)
	if err == nil {
		c.of.here().sent.Add(1)
	}
	return err
}

// RecvMsg implements grpc.ServerStream.
func (c *countedStream) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if err == nil {
		c.of.here().received.Add(1)
	}
	return err
}
