package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/etcdapi"
	"github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency"
	"github.com/leaderlease/go/kvnode/server/listener"
	"github.com/leaderlease/go/kvnode/server/status"
	"github.com/leaderlease/go/leaderlease/leasepage"
)

// Server is a running member.
type Server struct {
	cfg   Config // immutable, as all of this block
	log   *slog.Logger
	node  *kvnode.Node
	api   *etcdapi.API
	locks *concurrency.Services // nil if it could not be made
	// leases is nil if the page of leases is turned off.
	leases *leasepage.Live
	grpc   *grpc.Server
	// inside is the same for the JSON gateway.
	inside *grpc.Server
	pages  []*http.Server
	// gatewayConn is nil if there is no gateway.
	gatewayConn *grpc.ClientConn
	certs       certificates
	clients     *listener.Clients
	hosts       *listener.HostCheck
	gate        servingGate
	addrs       addrs
	registry    *prometheus.Registry
	// streams ends the requests that would never end by themselves.
	streams    context.Context
	endStreams context.CancelFunc

	ready    chan struct{}
	stopping atomic.Bool
	cut      atomic.Bool // requests were still under way at the end of drainTime
	// changes counts leaders.
	changes atomic.Uint64

	wg      sync.WaitGroup
	ending  context.Context // done once the server's own goroutines should end
	end     context.CancelFunc
	stop    sync.Once
	stopErr error // what the first Stop returned

	done chan struct{}
	mu   struct {
		sync.Mutex
		failed bool
		err    error
	}
}

// addrs is where a server listens.
type addrs struct{ client, http, metrics []string }

// Start binds all listeners, starts the node and serves. It returns before there
// is a leader: see Ready.
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
	clients := newClients(&cfg, certs)
	l, err := bind(context.Background(), &cfg, clients.ForGRPC, clients.ForPages)
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

// closeListeners closes those that the caller has given.
func (c *Config) closeListeners() {
	for _, l := range []net.Listener{c.Node.Listener, c.ClientListener, c.HTTPListener} {
		if l != nil {
			_ = l.Close() // nothing was accepted
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

// serve starts every goroutine of the server.
func (s *Server) serve(l *listeners) error {
	s.addrs = addrs{client: addresses(l.client), http: addresses(l.http), metrics: addresses(l.metrics)}
	var gateway http.Handler
	if !s.cfg.DisableGateway {
		inside := bufconn.Listen(insideBytes)
		var err error
		if gateway, err = s.newGateway(inside); err != nil {
			return err
		}
		s.wg.Go(func() { s.served(inside, s.inside.Serve(inside)) })
	}
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
	s.wg.Go(s.announce)
	s.wg.Go(s.compact)
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

// served is called when a listener's server has returned: by Stop, or because
// the listener has failed.
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
			err = kvnode.ErrStopped // by somebody else than this server
		}
		s.fail(err)
	case <-s.ending.Done():
	}
}

// fail records the first failure.
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

// Ready is closed when the member has served a linearizable read.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Done is closed when the server has failed or was stopped. Stop is still to be
// called after a failure.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says why the server failed, nil if it did not.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// ClientAddrs returns the addresses that serve gRPC.
func (s *Server) ClientAddrs() []string { return s.addrs.client }

// HTTPAddrs returns the addresses that serve JSON and the pages: those of
// listen-client-http-urls, or of listen-client-urls if there are none.
func (s *Server) HTTPAddrs() []string { return s.addrs.http }

// MetricsAddrs returns the addresses of listen-metrics-urls.
func (s *Server) MetricsAddrs() []string { return s.addrs.metrics }

// Report describes the member as of now.
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
