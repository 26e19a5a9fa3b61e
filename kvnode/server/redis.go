package server

import (
	"net"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/test/bufconn"

	kvclient "github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/fastkv"
	"github.com/leaderlease/go/kvnode/redis"
)

// redisGateway is the gateway of the Redis protocol and its client of this member. Without ListenRedisURLs, both are
// nil.
type redisGateway struct {
	client *clientv3.Client
	server *redis.Server
}

// serveRedis serves the Redis protocol. The gateway's client connects inside the process, as the JSON gateway's does.
func (s *Server) serveRedis(at []net.Listener, inside *bufconn.Listener) (err error) {
	if len(at) == 0 {
		return nil
	}
	g := &s.redis
	if g.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{"inside"}, DialOptions: append(kvclient.DialOptions(), dialInside(inside)), Logger: zap.NewNop(),
	}); err != nil {
		return err
	}
	if err := fastkv.Use(g.client); err != nil {
		return err
	}
	g.server, err = redis.New(redis.Config{
		KV: g.client.KV, Lease: clientv3.RetryLeaseClient(g.client), Registerer: s.registry, Log: s.cfg.named().With("component", "redis"),
	})
	if err != nil {
		return err
	}
	for _, l := range at {
		s.wg.Go(func() { s.served(l, g.server.Serve(l)) })
	}
	s.log.Info("serving the Redis protocol", "redis", s.addrs.redis)
	return nil
}

// close ends the connections before the member stops.
func (g *redisGateway) close() {
	if g.server != nil {
		g.server.Close()
	}
	if g.client != nil {
		_ = g.client.Close()
	}
}
