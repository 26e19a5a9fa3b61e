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

// readyRetry is the pause after a failed read. Without a leader the node itself waits; the pause
// is for errors that it returns at once.
const readyRetry = 20 * time.Millisecond

// scrapeTime limits how long a scrape waits for the checks of /readyz. With a longer time, a
// scraper of a member without a leader gives up and gets no metrics. With a shorter one, an
// election shows as a member that is not ready, while /readyz waits for its end.
const scrapeTime = time.Second

// readyNow reports whether the member has become ready, and /readyz would succeed within scrapeTime.
func (s *Server) readyNow() bool {
	if !s.isReady() || s.stopping.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ending, scrapeTime)
	defer cancel()
	return s.api.Readiness(ctx) == nil
}

// Live returns why /livez fails, or nil. It does not block.
func (s *Server) Live(ctx context.Context) error { return s.api.Liveness(ctx) }

// awaitReady closes ready when clients can be served: after a linearizable read, for which this member needs a leader
// and must have applied everything that was committed before, and after the member list has this member's client URLs.
func (s *Server) awaitReady() {
	if !s.openGate() {
		return
	}
	// Without a leader each read would fail after RequestTimeout and count as a failed read.
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
	// Scripts list the members next, and followers forward to the leader's URLs.
	select {
	case <-s.node.Published():
	case <-s.ending.Done():
		return
	case <-s.done:
		return
	}
	close(s.ready)
	// Test harnesses for etcd wait for this text.
	s.log.Info("ready to serve client requests", "client", s.addrs.client,
		"leader", s.node.Leader() == s.node.ID(), "term", s.node.Term())
}

// awaitLeader returns when a leader is known, or the server ends.
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
		// Fetch the channel before reading the leader: a change in between closes it.
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

// servingGate makes requests wait while this member compares its data with the other members' (InitialCorruptCheck).
// The port is open meanwhile, because the others may compare their data, too, and ask this member for hashes. So
// requests of clients arrive as well. If they were rejected, writes would fail, because clients do not repeat a write
// after Unavailable.
type servingGate struct {
	// release is nil while the gate is open. Otherwise it is the channel that requests wait for.
	release atomic.Pointer[chan struct{}]
	// waiting is the number of waiting requests, bytes an estimate of their memory.
	waiting, bytes atomic.Int64
}

// A request is rejected if with it more than maxWaitingBytes, or more than half of MaxInFlight, would wait. The other
// half of MaxInFlight is for the members that compare their data.
const (
	maxWaitingBytes = 64 << 20
	waitingCost     = 16 << 10 // of a goroutine and gRPC's buffers
)

// ungated are the methods that pass a closed gate. They show no keys. Keep-alives must pass it: a leader with
// a closed gate expires TTL leases as well, and would revoke those that could not be renewed.
var ungated = map[string]bool{
	pb.Lease_LeaseKeepAlive_FullMethodName: true,
	pb.Maintenance_HashKV_FullMethodName:   true,
	pb.Maintenance_Status_FullMethodName:   true,
	status.Method:                          true,
}

const gateClosedText = "kvnode: this member compares its data with the others' before it serves"

// close makes requests wait until open.
func (g *servingGate) close() { g.release.Store(new(make(chan struct{}))) }

func (g *servingGate) open() {
	if opened := g.release.Swap(nil); opened != nil {
		close(*opened)
	}
}

func (g *servingGate) isClosed() bool { return g.release.Load() != nil }

// wait returns when a request of that size may be served. It fails with Unavailable above a
// limit, or when ctx or stopping, the server's context, ends.
func (g *servingGate) wait(ctx, stopping context.Context, method string, size int, maxWaiting int64) error {
	opened := g.release.Load()
	if opened == nil || ungated[method] {
		return nil
	}
	cost := int64(waitingCost + size)
	defer func() { g.waiting.Add(-1); g.bytes.Add(-cost) }()
	if n, b := g.waiting.Add(1), g.bytes.Add(cost); n > maxWaiting || b > maxWaitingBytes {
		return grpcstatus.Errorf(codes.Unavailable, "%s: %d requests with %d bytes wait for it (limits: %d and %d)", gateClosedText, n, b, maxWaiting, maxWaitingBytes)
	}
	select {
	case <-*opened:
		return nil
	case <-ctx.Done():
	case <-stopping.Done():
	}
	return grpcstatus.Error(codes.Unavailable, gateClosedText)
}

// isLiveness reports whether a unary request asks for the process's liveness, which does not depend on
// the gate.
func isLiveness(req any) bool {
	r, ok := req.(*healthpb.HealthCheckRequest)
	return ok && r.GetService() == "livez"
}

// options returns the interceptors of a gRPC server behind the gate.
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
