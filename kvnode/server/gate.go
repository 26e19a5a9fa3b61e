package server

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/server/status"
)

// servingGate makes requests wait while this member compares its data with the others', which do the
// same and must be answered. To refuse them would fail writes: clients do not repeat a write after
// Unavailable.
type servingGate struct {
	// closed is nil once requests are served, and closed by open.
	opened atomic.Pointer[chan struct{}]
	// waiting is the number of requests that wait, and bytes what they take.
	waiting, bytes atomic.Int64
}

// What may wait. Beyond it requests are refused: what waits takes memory, and counts among the
// requests under way, of which the members that compare their data need some.
const (
	maxWaitingBytes = 64 << 20
	waitingCost     = 16 << 10 // of a request without its bytes: a goroutine, and what gRPC keeps
)

// keyless are the methods that show no key. Keep-alives are among them: a member
// that leads counts the time of TTL leases behind its gate, too, and would revoke
// those that nobody could renew.
var keyless = map[string]bool{
	pb.Lease_LeaseKeepAlive_FullMethodName: true,
	pb.Maintenance_HashKV_FullMethodName:   true,
	pb.Maintenance_Status_FullMethodName:   true,
	status.Method:                          true,
}

const checking = "kvnode: this member compares its data with the others' before it serves"

// close makes requests wait from now on.
func (s *servingGate) close() { s.opened.Store(new(make(chan struct{}))) }

// open lets all requests go on.
func (s *servingGate) open() {
	if raised := s.opened.Swap(nil); raised != nil {
		close(*raised)
	}
}

func (s *servingGate) isClosed() bool { return s.opened.Load() != nil }

// wait returns once a request of that size may be served. It fails when ctx ends, or stopping,
// which is the server's, or if more than most requests, or maxWaitingBytes, would wait: nothing
// was done then.
func (s *servingGate) wait(ctx, stopping context.Context, method string, size int, most int64) error {
	raised := s.opened.Load()
	if raised == nil || keyless[method] {
		return nil
	}
	cost := int64(waitingCost + size)
	defer func() { s.waiting.Add(-1); s.bytes.Add(-cost) }()
	if n, b := s.waiting.Add(1), s.bytes.Add(cost); n > most || b > maxWaitingBytes {
		return grpcstatus.Errorf(codes.Unavailable, "%s: %d requests with %d bytes wait for that, and %d with %d may", checking, n, b, most, maxWaitingBytes)
	}
	select {
	case <-*raised:
		return nil
	case <-ctx.Done():
	case <-stopping.Done():
	}
	return grpcstatus.Error(codes.Unavailable, checking)
}

// isLiveness reports whether a request asks whether the process is alive, which it is meanwhile.
func isLiveness(req any) bool {
	r, ok := req.(*healthpb.HealthCheckRequest)
	return ok && r.GetService() == "livez"
}

// options make a server of gRPC one behind the gate, until stopping ends. At most half of
// maxInFlight requests wait.
func (s *servingGate) options(stopping context.Context, maxInFlight int) []grpc.ServerOption {
	most := int64(maxInFlight / 2)
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if !isLiveness(req) {
				size := 0
				if m, ok := req.(proto.Message); ok {
					size = proto.Size(m)
				}
				if err := s.wait(ctx, stopping, info.FullMethod, size, most); err != nil {
					return nil, err
				}
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := s.wait(stream.Context(), stopping, info.FullMethod, 0, most); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}
