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
	"github.com/leaderlease/go/kvnode/internal/autocompact"
	"github.com/leaderlease/go/kvnode/internal/etcdapi"
	"github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency"
	"github.com/leaderlease/go/kvnode/internal/listener"
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
	drainTimedOut      atomic.Bool // requests were still under way at the end of drainTime
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
	s.wg.Go(s.awaitReady)
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

// drainTime bounds the wait for requests under way. Longer: a client that
// does not read holds up a restart. Tests set it.
var drainTime = 2 * time.Second

// pagesTime bounds the same for HTTP.
const pagesTime = 500 * time.Millisecond

// Stop ends the server in the order in which clients notice least: readiness
// goes off, connections are told to go elsewhere, requests under way finish,
// leadership is transferred, the node stops. What cannot be finished before ctx
// ends is cut. Further calls return what the first did.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() { s.stopErr = s.shutdown(ctx) })
	return s.stopErr
}

func (s *Server) shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	s.log.Info("stopping")

	s.drain(ctx)
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	err = errors.Join(err, s.node.Stop(ctx))
	// The pages last longest: /readyz and /metrics answer until the end.
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

// drain lets requests under way finish and cuts what remains. Streams have no
// end of their own, so they are ended first.
func (s *Server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	s.endStreams()
	s.api.EndStreams()
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
		s.log.Warn("requests under way are cut", "after", drainTime)
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
			errs = append(errs, p.Close()) // somebody profiles, or does not read
		}
	}
	return errors.Join(errs...)
}

// The values of Config.AutoCompactionMode.
const (
	CompactPeriodic = autocompact.Periodic
	CompactRevision = autocompact.Revision
)

// compaction returns the policy that is asked for.
func (c *Config) compaction() (autocompact.Policy, error) {
	return autocompact.Parse(c.AutoCompactionMode, c.AutoCompactionRetention)
}

// compact compacts by itself until the server ends.
func (s *Server) compact() {
	policy, err := s.cfg.compaction()
	if err != nil || !policy.Enabled() {
		return // Validate has refused the error
	}
	autocompact.Run(s.ending, autocompact.Config{Policy: policy, Member: s.node, Revisions: s.node.Store(), Logger: s.cfg.named()})
}

// module is where kvnode's version is recorded when it is built into another
// program.
const module = "github.com/leaderlease/go"

// EtcdVersion is the version of etcd whose API the server answers. Clients parse it.
const EtcdVersion = etcdapi.Version

// DefaultQuotaBytes is the size limit of the store if Config.API.QuotaBytes is 0.
const DefaultQuotaBytes = etcdapi.DefaultQuotaBytes

// Version returns the version of kvnode that this program was built with, which has commit and date
// in a checkout. It is "unknown" if the build had no information of version control.
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
