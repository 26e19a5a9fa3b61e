package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/fastkv"
	"github.com/leaderlease/go/kvnode/redis"
)

// redisGateway holds the flags of kvnode redis.
type redisGateway struct {
	caller

	listen, logLevel     string
	metrics              []string
	plain                bool
	certFile, keyFile    string
	clientCA             string
	maxConns, maxRequest int
}

const redisLong = `Experimental. Redis serves the Redis protocol in front of a cluster of kvnode or etcd: strings, expiry, MULTI
and WATCH, and the scripts of lock libraries. Reads are linearizable, and a write is acknowledged when
the cluster has committed it. An expiry is rounded up to whole seconds. An error that begins with
UNKNOWN says that a write may or may not have taken effect. KV.LOCK KEY OWNER PX MS returns a fencing
token, or nil if another owner holds the key, and KV.REV KEY OWNER returns the token again.`

func newRedis(sys *System) *cobra.Command {
	g := &redisGateway{}
	cmd := &cobra.Command{
		Use:   "redis",
		Short: "Serve the Redis protocol in front of a cluster",
		Long:  redisLong,
		Args:  settings.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return g.run(c.Context(), sys) },
	}
	flags := cmd.Flags()
	g.caller.flags(sys, flags, 10*time.Second)
	flags.StringVar(&g.listen, "listen", "127.0.0.1:6379", "address for Redis clients")
	flags.BoolVar(&g.plain, "allow-plaintext", false, "serve without TLS on an address that is not loopback")
	flags.StringVar(&g.certFile, "cert-file", "", "certificate for Redis clients, PEM; with it, they must use TLS")
	flags.StringVar(&g.keyFile, "key-file", "", "its key")
	flags.StringVar(&g.clientCA, "trusted-ca-file", "", "authorities that sign Redis clients' certificates; each client needs one then")
	flags.StringSliceVar(&g.metrics, "listen-metrics-urls", nil, "where to serve /metrics: http, or https with --cert-file")
	flags.StringVar(&g.logLevel, "log-level", "info", "least severe lines to log; debug shows each step of a lock")
	flags.IntVar(&g.maxConns, "max-connections", 1000, "how many connections are served at once")
	flags.IntVar(&g.maxRequest, "max-bulk-bytes", 1<<20, "longest argument of a command")
	return cmd
}

func (g *redisGateway) run(ctx context.Context, sys *System) error {
	if g.maxConns < 1 || g.maxRequest < 1 {
		return usageError{fmt.Errorf("--max-connections %d and --max-bulk-bytes %d must be positive", g.maxConns, g.maxRequest)}
	}
	level, is := levels[g.logLevel]
	if !is {
		return usageError{fmt.Errorf("--log-level %q must be debug, info, warn, error, panic or fatal", g.logLevel)}
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	return g.with(func(c *clientv3.Client) error {
		l, pages, err := g.listeners()
		if err != nil {
			return usageError{err}
		}
		defer closeAll(append(pages, l)) // Close of the gateway has closed some
		if err := fastkv.Use(c); err != nil {
			return err
		}
		registry := prometheus.NewRegistry()
		s, err := redis.New(redis.Config{
			KV: c.KV, Lease: clientv3.RetryLeaseClient(c), Timeout: g.timeout, MaxConns: g.maxConns, MaxBulk: g.maxRequest, Registerer: registry,
			Log: slog.New(slog.NewTextHandler(sys.Stderr, &slog.HandlerOptions{Level: level})),
		})
		if err != nil {
			return err
		}
		defer s.Close()
		defer context.AfterFunc(ctx, s.Close)()
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		defer func() { _ = web.Close() }()
		for _, at := range pages {
			go func() { _ = web.Serve(at) }()
		}
		if _, err := fmt.Fprintf(sys.Stdout, "serving the Redis protocol on %s\n", l.Addr()); err != nil {
			return err
		}
		return s.Serve(l)
	})
}

// listeners listen for Redis clients and for scrapes.
func (g *redisGateway) listeners() (clients net.Listener, pages []net.Listener, err error) {
	secured, err := g.tls()
	if err != nil {
		return nil, nil, err
	}
	if clients, err = g.at("--listen", g.listen, secured); err != nil {
		return nil, nil, err
	}
	for _, s := range g.metrics {
		u, err := url.Parse(s)
		var l net.Listener
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https":
			err = fmt.Errorf("--listen-metrics-urls %q must be http://host:port or https://host:port", s)
		case u.Scheme == "http":
			l, err = g.at("--listen-metrics-urls", u.Host, nil)
		case secured == nil:
			err = fmt.Errorf("--listen-metrics-urls %q needs --cert-file and --key-file", s)
		default:
			l, err = g.at("--listen-metrics-urls", u.Host, secured)
		}
		if err != nil {
			closeAll(append(pages, clients))
			return nil, nil, err
		}
		pages = append(pages, l)
	}
	return clients, pages, nil
}

func closeAll(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}

// at listens, with TLS if there is a certificate. Plain text is for loopback addresses.
func (g *redisGateway) at(flag, addr string, secured *tls.Config) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", flag, addr, err)
	}
	if secured != nil {
		return tls.NewListener(l, secured), nil
	}
	if at, is := l.Addr().(*net.TCPAddr); !g.plain && (!is || !at.IP.IsLoopback()) {
		return nil, errors.Join(fmt.Errorf("%s %q is not a loopback address: set --cert-file and --key-file, or --allow-plaintext", flag, addr), l.Close())
	}
	return l, nil
}

// tls reads the certificates for Redis clients. It returns nil without any.
func (g *redisGateway) tls() (*tls.Config, error) {
	if g.certFile == "" && g.keyFile == "" && g.clientCA == "" {
		return nil, nil //nolint:nilnil // nil is plain text
	}
	pair, err := tls.LoadX509KeyPair(g.certFile, g.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-file %q and --key-file %q: %w", g.certFile, g.keyFile, err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if g.clientCA == "" {
		return cfg, nil
	}
	data, err := os.ReadFile(g.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--trusted-ca-file: %w", err)
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("--trusted-ca-file %s has no certificate in PEM form", g.clientCA)
	}
	return cfg, nil
}
