package server

import (
	"context"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server/status"
)

// readyRetry is how long announce waits after a read that failed. The node's
// own waiting paces it while there is no leader; this is for errors that come
// at once.
const readyRetry = 20 * time.Millisecond

// scrapeTime bounds for how long a scrape waits for the checks of /readyz. Longer: who
// scrapes a member without a leader gives up, and gets no figures at all. Shorter: an
// election shows as a member that is not ready, which /readyz waits for.
const scrapeTime = time.Second

// readyNow reports whether /readyz would be good.
func (s *Server) readyNow() bool {
	if !s.isReady() || s.stopping.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ending, scrapeTime)
	defer cancel()
	return s.api.Readiness(ctx) == nil
}

// Live returns why /livez fails, and nil if it does not. It waits for nothing.
func (s *Server) Live(ctx context.Context) error { return s.api.Liveness(ctx) }

// awaitReady says when clients can be served: when a linearizable read has been,
// which needs a leader and everything that was committed before the start, and
// when the other members know where this one serves.
func (s *Server) awaitReady() {
	if !s.openGate() {
		return
	}
	// A read that begins before there is a leader waits for its next try, which
	// may be long after there is one.
	s.awaitLeader()
	for {
		_, err := s.node.Read(s.ending, kvnode.ReadAuto)
		if err == nil {
			break
		}
		select {
		case <-s.ending.Done():
			return
		case <-s.done:
			return
		case <-time.After(readyRetry):
		}
	}
	// Scripts list the members next, and followers look for the leader's URLs.
	select {
	case <-s.node.Published():
	case <-s.ending.Done():
		return
	case <-s.done:
		return
	}
	close(s.ready)
	// Harnesses made for etcd wait for these very words.
	s.log.Info("ready to serve client requests", "client", s.addrs.client,
		"leader", s.node.Leader() == s.node.ID(), "term", s.node.Term())
}

// awaitLeader returns when a leader is known, or nobody waits any more.
func (s *Server) awaitLeader() {
	for {
		changed := s.node.LeaderChanged()
		if s.node.Leader() != 0 {
			return
		}
		select {
		case <-changed:
		case <-s.done:
			return
		case <-s.ending.Done():
			return
		}
	}
}

// watchLeader counts leaders for the metrics.
func (s *Server) watchLeader() {
	var last uint64
	for {
		// The channel is taken before the leader is read: a change in between
		// closes it.
		changed := s.node.LeaderChanged()
		if leader := s.node.Leader(); leader != 0 && leader != last {
			last = leader
			s.changes.Add(1)
		}
		select {
		case <-changed:
		case <-s.node.Done():
			return
		case <-s.ending.Done():
			return
		}
	}
}

// servingGate makes requests wait while this member compares its data with the other
// members' (InitialCorruptCheck). The port serves meanwhile: the others compare, too,
// and ask this member for hashes. A request that is refused instead fails its client:
// clients do not repeat a write after Unavailable.
type servingGate struct {
	// opened is nil while requests are served. open closes the channel.
	opened atomic.Pointer[chan struct{}]
	// waiting is the number of requests that wait, bytes an estimate of their memory.
	waiting, bytes atomic.Int64
}

// Above these limits, and above half of MaxInFlight, a request is refused. The members
// that compare their data need the other half.
const (
	maxWaitingBytes = 64 << 20
	waitingCost     = 16 << 10 // of a goroutine and of what gRPC keeps
)

// keyless are the methods that pass a closed gate, since they show no key. Keep-alives
// are among them: the leader counts the time of TTL leases behind its closed gate, and
// would revoke those that were not renewed.
var keyless = map[string]bool{
	pb.Lease_LeaseKeepAlive_FullMethodName: true,
	pb.Maintenance_HashKV_FullMethodName:   true,
	pb.Maintenance_Status_FullMethodName:   true,
	status.Method:                          true,
}

const gateClosedText = "kvnode: this member compares its data with the others' before it serves"

// close makes requests wait until open.
func (g *servingGate) close() { g.opened.Store(new(make(chan struct{}))) }

func (g *servingGate) open() {
	if opened := g.opened.Swap(nil); opened != nil {
		close(*opened)
	}
}

func (g *servingGate) isClosed() bool { return g.opened.Load() != nil }

// wait returns when a request of that size may be served. It fails with Unavailable
// when ctx or stopping ends, which is the server's context, or above a limit.
func (g *servingGate) wait(ctx, stopping context.Context, method string, size int, maxWaiting int64) error {
	opened := g.opened.Load()
	if opened == nil || keyless[method] {
		return nil
	}
	cost := int64(waitingCost + size)
	defer func() { g.waiting.Add(-1); g.bytes.Add(-cost) }()
	if n, b := g.waiting.Add(1), g.bytes.Add(cost); n > maxWaiting || b > maxWaitingBytes {
		return grpcstatus.Errorf(codes.Unavailable, "%s: %d requests with %d bytes wait for that, and %d with %d may", gateClosedText, n, b, maxWaiting, maxWaitingBytes)
	}
	select {
	case <-*opened:
		return nil
	case <-ctx.Done():
	case <-stopping.Done():
	}
	return grpcstatus.Error(codes.Unavailable, gateClosedText)
}

// isLiveness reports whether a request asks for the process's liveness, which does not
// depend on the gate.
func isLiveness(req any) bool {
	r, ok := req.(*healthpb.HealthCheckRequest)
	return ok && r.GetService() == "livez"
}

// options return the interceptors of a gRPC server behind the gate.
func (g *servingGate) options(stopping context.Context, maxInFlight int) []grpc.ServerOption {
	maxWaiting := int64(maxInFlight / 2)
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if !isLiveness(req) {
				size := 0
				if m, ok := req.(proto.Message); ok {
					size = proto.Size(m)
				}
				if err := g.wait(ctx, stopping, info.FullMethod, size, maxWaiting); err != nil {
					return nil, err
				}
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := g.wait(stream.Context(), stopping, info.FullMethod, 0, maxWaiting); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}
