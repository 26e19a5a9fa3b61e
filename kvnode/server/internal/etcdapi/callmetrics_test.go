package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// known is a server with methods of all kinds.
type known struct{}

func (known) GetServiceInfo() map[string]grpc.ServiceInfo {
	return map[string]grpc.ServiceInfo{"a.KV": {Methods: []grpc.MethodInfo{
		{Name: "Range"},
		{Name: "Idle"},
		{Name: "Up", IsClientStream: true},
		{Name: "Down", IsServerStream: true},
		{Name: "Both", IsClientStream: true, IsServerStream: true},
	}}}
}

// counter is what CallMetrics and the package that it replaces have in common.
type counter interface {
	prometheus.Collector
	UnaryServerInterceptor() grpc.UnaryServerInterceptor
	StreamServerInterceptor() grpc.StreamServerInterceptor
}

type original struct{ *grpcprom.ServerMetrics }

func (o original) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return o.ServerMetrics.UnaryServerInterceptor()
}

func (o original) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return o.ServerMetrics.StreamServerInterceptor()
}

// messages is a stream of two messages each way; the next one fails.
type messages struct {
	grpc.ServerStream
	in, out int
}

func (messages) Context() context.Context { return context.Background() }

func (m *messages) SendMsg(any) error { m.out++; return limit(m.out) }
func (m *messages) RecvMsg(any) error { m.in++; return limit(m.in) }

func limit(n int) error {
	if n > 2 {
		return io.EOF
	}
	return nil
}

// outcomes are what calls end with.
var outcomes = []error{
	nil, nil, nil, io.EOF, context.Canceled, context.DeadlineExceeded, fmt.Errorf("why: %w", context.Canceled),
	status.Error(codes.NotFound, ""), status.Error(codes.Unauthenticated, ""), fmt.Errorf("why: %w", status.Error(codes.Aborted, "")),
	errors.Join(status.Error(codes.Internal, ""), io.EOF),
}

// makeCalls has calls and streams of all kinds pass.
func makeCalls(t *testing.T, m counter) {
	t.Helper()
	for i, want := range outcomes {
		_, err := m.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.KV/Range"},
			func(context.Context, any) (any, error) { return i, want })
		if !errors.Is(err, want) {
			t.Errorf("a call that fails with %v fails with %v", want, err)
		}
		for _, info := range []grpc.StreamServerInfo{
			{FullMethod: "/a.KV/Up", IsClientStream: true},
			{FullMethod: "/a.KV/Down", IsServerStream: true},
			{FullMethod: "/a.KV/Both", IsClientStream: true, IsServerStream: true},
		} {
			err := m.StreamServerInterceptor()(nil, &messages{}, &info, func(_ any, s grpc.ServerStream) error {
				for range i {
					_ = s.SendMsg(nil)
				}
				for range 2 * i {
					_ = s.RecvMsg(nil)
				}
				return want
			})
			if !errors.Is(err, want) {
				t.Errorf("a stream that fails with %v fails with %v", want, err)
			}
		}
	}
}

// gathered returns all series, but for how long things took: that is the count alone.
func gathered(t *testing.T, c prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := fmt.Sprint(m.GetCounter().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprint(h.GetSampleCount())
				for _, b := range h.GetBucket() {
					value += fmt.Sprint(" ", b.GetUpperBound())
				}
			}
			all = append(all, fmt.Sprintf("%s %v %q %v = %s", f.GetName(), f.GetType(), f.GetHelp(), m.GetLabel(), value))
		}
	}
	slices.Sort(all)
	return all
}

// Names, labels and counts are those of the package that etcd uses.
func TestAsTheOriginal(t *testing.T) {
	for _, histogram := range []bool{false, true} {
		theirs := original{grpcprom.NewServerMetrics()}
		if histogram {
			theirs = original{grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram())}
		}
		ours := NewCallMetrics(histogram)
		theirs.InitializeMetrics(known{})
		ours.InitializeMetrics(known{})
		for range 2 {
			got, want := gathered(t, ours), gathered(t, theirs)
			if !slices.Equal(got, want) {
				t.Errorf("histogram %v:\n%s\nwant\n%s", histogram, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			makeCalls(t, ours)
			makeCalls(t, theirs)
		}
	}
}

// A method that no server has told of is counted from its first call on.
func TestAMethodThatWasNotKnown(t *testing.T) {
	m := NewCallMetrics(false)
	makeCalls(t, m)
	want := `grpc_server_started_total COUNTER "Total number of RPCs started on the server." [name:"grpc_method" value:"Range" name:"grpc_service" value:"a.KV" name:"grpc_type" value:"unary"] = 11`
	got := strings.ReplaceAll(strings.Join(gathered(t, m), "\n"), "  ", " ")
	if !strings.Contains(got, want) {
		t.Errorf("all there is:\n%s\nwant\n%s", got, want)
	}
	m.unaryMethod("nowhere").End(m.unaryMethod("nowhere").Begin(), status.Error(99, ""))
	if c := m.unaryMethod("nowhere").load(); c.started != 1 || c.handled[codes.Unknown] != 1 {
		t.Errorf("a code that gRPC does not have is counted as %+v, want Unknown", c)
	}
}

func TestACallAllocatesNothing(t *testing.T) {
	m := NewCallMetrics(true)
	if n := testing.AllocsPerRun(100, func() { of := m.unaryMethod("/a.KV/Range"); of.End(of.Begin(), nil) }); n != 0 {
		t.Errorf("a call allocates %v times, want 0", n)
	}
}

func BenchmarkCall(b *testing.B) {
	handle := func(context.Context, any) (any, error) { return nil, nil }
	info := &grpc.UnaryServerInfo{FullMethod: "/etcdserverpb.KV/Range"}
	for name, m := range map[string]counter{"ours": NewCallMetrics(false), "theirs": original{grpcprom.NewServerMetrics()}} {
		b.Run("metrics="+name, func(b *testing.B) {
			call := m.UnaryServerInterceptor()
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_, _ = call(b.Context(), nil, info, handle)
				}
			})
		})
	}
}
