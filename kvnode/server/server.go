package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
	"github.com/leaderlease/go/kvnode/server/status"
	"github.com/leaderlease/go/leaderlease/leasepage"
)

// Server is a running member.
type Server struct {
	cfg   Config // immutable, as this block
	log   *slog.Logger
	node  *kvnode.Node
	api   *etcdapi.API
	locks *concurrency.Services // nil if build has failed before it was created
	// leases is nil if the lease page is turned off.
	leases *leasepage.Live
	grpc   *grpc.Server
	// inside serves the requests of the JSON and Redis gateways, inside the process.
	inside *grpc.Server
	pages  []*http.Server
	// gatewayConn is the JSON gateway's, nil without one.
	gatewayConn *grpc.ClientConn
	redis       redisGateway
	certs       certificates
	clients     *listener.Endpoint
	hosts       *listener.HostCheck
	gate        servingGate
	addrs       addrs
	registry    *prometheus.Registry
	// streams is the context of requests that would not end by themselves. endStreams ends it.
	streams    context.Context
	endStreams context.CancelFunc

	ready         chan struct{}
	stopping      atomic.Bool
	drainTimedOut atomic.Bool // requests were in progress after drainTime
	// changes counts the leaders seen.
	changes atomic.Uint64

	wg      sync.WaitGroup
	ending  context.Context // ends the server's own goroutines
	end     context.CancelFunc
	stop    sync.Once
	stopErr error // the result of the first Stop

	done chan struct{}
	mu   struct {
		sync.Mutex
		failed bool
		err    error
	}
}

// addrs are the addresses that a server listens on.
type addrs struct{ client, http, metrics, redis []string }

// Start binds all listeners, starts the node and serves. It returns before a leader is known: see
// Ready.
func Start(cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	err := cfg.Validate()
	if err == nil {
		err = cfg.Check()
	}
	if err != nil {
		cfg.closeListeners()
		return nil, &ConfigError{err}
	}
	for _, w := range cfg.Warnings() {
		cfg.log().Warn(w)
	}
	certs, err := cfg.certificates()
	if err != nil {
		cfg.closeListeners()
		return nil, &ConfigError{err}
	}
	clients := newEndpoint(&cfg, certs)
	l, err := bind(context.Background(), &cfg, clients)
	if err != nil {
		return nil, &ConfigError{err}
	}
	nodeConfig := cfg.node(l.peer)
	nodeConfig.PeerTLS = certs.peer
	node, err := kvnode.Start(nodeConfig)
	if err != nil {
		l.close()
		return nil, err
	}
	s := newServer(&cfg, node)
	s.certs, s.clients = certs, clients
	if cfg.InitialCorruptCheck && !node.Fresh() {
		s.gate.close()
	}
	err = s.build()
	if err == nil {
		err = s.serve(l)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		l.close()
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// closeListeners closes the listeners that the caller has passed.
func (c *Config) closeListeners() {
	for _, l := range []net.Listener{c.Node.Listener, c.ClientListener, c.HTTPListener} {
		if l != nil {
			_ = l.Close() // no connection was accepted
		}
	}
}

func newServer(cfg *Config, node *kvnode.Node) *Server {
	s := &Server{
		cfg: *cfg, log: cfg.log(), node: node, hosts: newHosts(cfg),
		ready: make(chan struct{}), done: make(chan struct{}),
	}
	s.streams, s.endStreams = context.WithCancel(context.Background())
	s.ending, s.end = context.WithCancel(context.Background())
	return s
}

// serve starts the server's goroutines.
func (s *Server) serve(l *listeners) error {
	s.addrs = addrs{client: addresses(l.client), http: addresses(l.http), metrics: addresses(l.metrics), redis: addresses(l.redis)}
	inside := bufconn.Listen(insideBytes)
	var gateway http.Handler
	if !s.cfg.DisableGateway {
		var err error
		if gateway, err = s.newGateway(inside); err != nil {
			return err
		}
	}
	if err := s.serveRedis(l.redis, inside); err != nil {
		return err
	}
	s.wg.Go(func() { s.served(inside, s.inside.Serve(inside)) })
	if pages := s.clients.Pages(); pages != nil {
		s.addrs.http = s.addrs.client
		l.http = append(l.http, pages)
	}
	for _, at := range l.client {
		s.wg.Go(func() { s.served(at, s.grpc.Serve(at)) })
	}
	for _, at := range l.http {
		s.servePages(at, s.hosts.Wrap(s.clientPages(gateway)))
	}
	for _, at := range l.metrics {
		s.servePages(at, s.metricsPages())
	}
	s.wg.Go(s.watchNode)
	s.wg.Go(s.watchLeader)
	s.wg.Go(s.awaitReady)
	s.wg.Go(s.autoCompact)
	s.wg.Go(s.watchCorruption)
	s.log.Info("serving", "id", status.ID(s.node.ID()), "cluster", status.ID(s.node.ClusterID()),
		"client", s.addrs.client, "http", s.addrs.http, "metrics", s.addrs.metrics)
	return nil
}

func addresses(all []net.Listener) (addrs []string) {
	for _, l := range all {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// served is called when a server on l has returned. Unless the Server stops, the listener has
// failed.
func (s *Server) served(l net.Listener, err error) {
	if !s.stopping.Load() {
		s.fail(fmt.Errorf("kvnode: serve %s: %w", l.Addr(), err))
	}
}

func (s *Server) watchNode() {
	select {
	case <-s.node.Done():
		if s.stopping.Load() {
			return
		}
		err := s.node.Err()
		if err == nil {
			err = kvnode.ErrStopped // not stopped by this server
		}
		s.fail(err)
	case <-s.ending.Done():
	}
}

// fail records the first failure and closes done.
func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failed {
		return
	}
	s.mu.failed, s.mu.err = true, err
	close(s.done)
}

// Node returns the member.
func (s *Server) Node() *kvnode.Node { return s.node }

// Ready is closed when the member has served a linearizable read, and the member list has its client URLs.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Done is closed when the server has failed or was stopped. After a failure, Stop must still be
// called.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why the server failed, or nil.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// ClientAddrs returns the addresses that serve gRPC.
func (s *Server) ClientAddrs() []string { return s.addrs.client }

// HTTPAddrs returns the addresses that serve JSON and the pages: those of ListenClientHTTPURLs,
// or of ListenClientURLs if there are none.
func (s *Server) HTTPAddrs() []string { return s.addrs.http }

// MetricsAddrs returns the addresses of ListenMetricsURLs.
func (s *Server) MetricsAddrs() []string { return s.addrs.metrics }

// RedisAddrs returns the addresses of ListenRedisURLs.
func (s *Server) RedisAddrs() []string { return s.addrs.redis }

// Report returns the member's current status.
func (s *Server) Report() status.Report {
	st := s.node.Status()
	r := status.Of(&st)
	r.Version = Version()
	r.Revision = s.node.Store().Revision()
	r.Ready = s.isReady()
	if s.cfg.Spell != nil {
		r.Reword(s.cfg.Spell)
	}
	return r
}

func (s *Server) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// drainTime limits the wait for requests in progress. With a longer time, a client that does not read its answers
// delays a restart. Tests set it.
var drainTime = 2 * time.Second

// pagesTime is the same limit for HTTP.
const pagesTime = 500 * time.Millisecond

// Stop stops the server with the least effect on clients: it turns readiness off, tells
// connections to go away, lets requests in progress finish, transfers leadership and stops the
// node. It closes Redis connections at once, and cuts off other requests after 2 s or when ctx
// ends. Further calls return the result of the first one.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() { s.stopErr = s.shutdown(ctx) })
	return s.stopErr
}

func (s *Server) shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	s.log.Info("stopping")

	s.redis.close()
	s.drain(ctx)
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	err = errors.Join(err, s.node.Stop(ctx))
	// The pages stop last. Until then they answer on open connections, and on listeners without gRPC.
	err = errors.Join(err, s.closePages(ctx))
	if s.gatewayConn != nil {
		err = errors.Join(err, s.gatewayConn.Close())
	}
	s.api.Close()
	s.end()
	s.wg.Wait()
	s.fail(nil)
	s.log.Info("stopped")
	return err
}

// drain lets requests in progress finish, and cuts off the rest after drainTime. It first ends
// streams, which would not end by themselves.
func (s *Server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	s.endStreams()
	s.api.StopFastStreams()
	s.clients.End()
	drained := make(chan struct{})
	s.wg.Go(func() {
		s.inside.GracefulStop()
		s.grpc.GracefulStop()
		close(drained)
	})
	select {
	case <-drained:
	case <-ctx.Done():
		s.drainTimedOut.Store(true)
		s.log.Warn("requests in progress are cut off")
		s.inside.Stop()
		s.grpc.Stop()
	}
}

func (s *Server) closePages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pagesTime)
	defer cancel()
	var errs []error
	for _, p := range s.pages {
		if p.Shutdown(ctx) != nil {
			errs = append(errs, p.Close()) // a profile runs, or a client does not read
		}
	}
	return errors.Join(errs...)
}

// module is the path of the module that kvnode is a part of.
const module = "github.com/leaderlease/go"

// EtcdVersion is the etcd version that the API implements. Clients parse it.
const EtcdVersion = etcdapi.Version

// DefaultQuotaBytes is the size limit of the store if Config.API.QuotaBytes is 0.
const DefaultQuotaBytes = etcdapi.DefaultQuotaBytes

// Version returns the version of kvnode that this program was built with. In a build from a checkout it contains the
// commit and its date. It is "unknown" if the build has no version information.
var Version = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && m.Version != "(devel)" {
				return m.Version
			}
		}
	}
	return "unknown"
})
