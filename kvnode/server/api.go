package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency"
	"github.com/leaderlease/go/kvnode/server/status"
)

// build creates the API and everything that serves it, on a running node.
func (s *Server) build() (err error) {
	requests := etcdapi.NewCallMetrics(s.cfg.ExtensiveMetrics)
	api := s.cfg.API
	api.NodeVersion, api.WaitingMethods, api.Metrics = Version(), concurrency.Waiting, requests
	if s.certs.client != nil {
		api.MemberDialOptions = append(slices.Clip(api.MemberDialOptions), newMemberCredentials(s.certs.client))
	}
	s.api = etcdapi.New(s.node, api)
	s.leases = s.newLeases()
	// All clients of the JSON gateway share one connection. With a limit of streams, clients that
	// wait for a lock could keep out the client that unlocks it.
	s.inside = grpc.NewServer(slices.Concat(s.clients.GatewayOptions(), s.grpcOptions(),
		[]grpc.ServerOption{grpc.MaxConcurrentStreams(math.MaxUint32), grpc.NumStreamWorkers(0)})...)
	s.grpc = grpc.NewServer(append(s.grpcOptions(), s.clients.Options(s.api.AdmitFastStream)...)...)
	if s.locks, err = concurrency.New(s.streams, s.node, api); err != nil {
		return err
	}
	for _, to := range []*grpc.Server{s.inside, s.grpc} {
		// Register these before the API, which creates the metrics of all methods.
		s.api.RegisterFast(to)
		status.Register(to, s)
		s.locks.Register(to)
	}
	if s.leases != nil {
		registerLeaseFeed(s.grpc, s.leases)
	}
	s.api.Register(s.inside)
	s.api.Register(s.grpc)
	s.registry, err = s.newRegistry(requests)
	return err
}

// grpcOptions returns the API's options, and those that the configuration changes.
func (s *Server) grpcOptions() []grpc.ServerOption {
	k := s.cfg.Keepalive
	options := append([]grpc.ServerOption{grpc.ChainStreamInterceptor(s.endWithServer)}, s.api.ServerOptions()...)
	if s.gate.isClosed() {
		options = append(options, s.gate.options(s.streams, cmp.Or(s.cfg.API.MaxInFlight, etcdapi.DefaultMaxInFlight))...)
	}
	options = append(options, grpc.KeepaliveEnforcementPolicy(
		keepalive.EnforcementPolicy{MinTime: k.MinTime, PermitWithoutStream: true}))
	if k.Interval < 0 {
		k.Interval = never
	}
	return append(options, grpc.KeepaliveParams(keepalive.ServerParameters{Time: k.Interval, Timeout: k.Timeout}))
}

// endWithServer ends a stream's context when the server stops, so that a watch does not delay the
// stop. The cause is ErrGRPCStopped, which package etcdapi turns into an error that clients retry.
//
// StopFastStreams ends the streams of service Fast instead, which keep the client's context.
func (s *Server) endWithServer(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == fastwire.Method {
		return handle(srv, stream)
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.streams, func() { cancel(rpctypes.ErrGRPCStopped) })()
	return handle(srv, etcdapi.StreamWithContext(ctx, stream))
}

// insideBytes is the size of the buffers between a gateway and gRPC.
const insideBytes = 256 << 10

// newGateway returns the JSON gateway. It is a gRPC client of this member, so that JSON and gRPC
// have the same limits, errors and metrics. It connects inside the process: the listener has
// already authenticated the JSON client, and the member needs no client certificate for itself.
func (s *Server) newGateway(inside *bufconn.Listener) (http.Handler, error) {
	conn, err := grpc.NewClient("passthrough:///gateway",
		dialInside(inside), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGatewayReply)))
	if err != nil {
		return nil, fmt.Errorf("kvnode: JSON gateway: %w", err)
	}
	handler, err := s.api.Gateway(s.ending, conn, concurrency.Gateway...)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.gatewayConn = conn
	return handler, nil
}

func dialInside(inside *bufconn.Listener) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inside.DialContext(ctx) })
}
