package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/leaderlease/go/kvnode/etcdapi"
	"github.com/leaderlease/go/kvnode/server/status"
)

// build makes everything that serves, on a node that runs.
func (s *Server) build() (err error) {
	requests := s.requestMetrics()
	s.api = etcdapi.New(s.node, s.cfg.api(requests))
	s.grpc = grpc.NewServer(s.grpcOptions()...)
	// Before the API, which makes the metrics of all methods there are.
	status.Register(s.grpc, s)
	s.api.Register(s.grpc)
	s.registry, err = s.newRegistry(requests)
	return err
}

// api returns the API's part of a configuration.
func (c *Config) api(requests *grpcprom.ServerMetrics) etcdapi.Config {
	return etcdapi.Config{
		MaxTxnOps:            c.MaxTxnOps,
		MaxRequestBytes:      c.MaxRequestBytes,
		MaxConcurrentStreams: c.MaxConcurrentStreams,
		ElectionTimeout:      c.ElectionTimeout,
		QuotaBytes:           c.QuotaBytes,
		NodeVersion:          Version(),
		Metrics:              requests,
		Logger:               c.Logger,
	}
}

func (s *Server) requestMetrics() *grpcprom.ServerMetrics {
	if s.cfg.ExtensiveMetrics {
		return grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram())
	}
	return grpcprom.NewServerMetrics()
}

// grpcOptions are the API's, then what the configuration says otherwise.
func (s *Server) grpcOptions() []grpc.ServerOption {
	k := s.cfg.Keepalive
	options := append([]grpc.ServerOption{grpc.ChainStreamInterceptor(s.endingStream)}, s.api.ServerOptions()...)
	options = append(options, grpc.KeepaliveEnforcementPolicy(
		keepalive.EnforcementPolicy{MinTime: k.MinTime, PermitWithoutStream: true}))
	if k.Interval < 0 {
		k.Interval = never
	}
	return append(options, grpc.KeepaliveParams(keepalive.ServerParameters{Time: k.Interval, Timeout: k.Timeout}))
}

// endingStream gives a stream a context that ends with the server, so that a
// watch does not hold up its stop.
func (s *Server) endingStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	return handle(srv, &streamUntil{ServerStream: stream, ctx: ctx})
}

type streamUntil struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *streamUntil) Context() context.Context { return s.ctx }

// newGateway returns the JSON gateway: a client of this very server, so that
// JSON and gRPC cannot differ in limits, errors or metrics.
func (s *Server) newGateway(l net.Listener) (http.Handler, error) {
	conn, err := grpc.NewClient("passthrough:///"+loopback(l.Addr()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGatewayReply)))
	if err != nil {
		return nil, fmt.Errorf("kvnode: JSON gateway: %w", err)
	}
	handler, err := s.api.Gateway(s.ending, conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.gatewayConn = conn
	return handler, nil
}

// loopback returns the address by which a process reaches its own listener.
func loopback(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err == nil && wildcard(host) {
		return net.JoinHostPort("localhost", port)
	}
	return addr.String()
}
