package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/client"
)

// caller holds the connection flags of commands that send requests to a cluster.
type caller struct {
	endpoints []string
	secure    secure
	timeout   time.Duration

	fs      *pflag.FlagSet
	environ []string
}

func (c *caller) flags(sys *System, fs *pflag.FlagSet, timeout time.Duration) {
	c.fs, c.environ = fs, sys.Environ
	fs.StringSliceVar(&c.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "client URLs or addresses of the members (ETCDCTL_ENDPOINTS)")
	c.secure.flags(fs)
	fs.DurationVar(&c.timeout, "timeout", timeout, "how long to wait for an answer")
}

// fromEnviron sets missing flags from etcdctl's environment variables.
func (c *caller) fromEnviron() error {
	for _, flag := range []string{"endpoints", "cacert", "cert", "key"} {
		name := "ETCDCTL_" + strings.ToUpper(flag)
		for _, pair := range c.environ {
			value, ok := strings.CutPrefix(pair, name+"=")
			if !ok || value == "" || c.fs.Changed(flag) {
				continue
			}
			if err := c.fs.Set(flag, value); err != nil {
				return usageError{fmt.Errorf("%s=%q: %w", name, value, err)}
			}
		}
	}
	return nil
}

func (c *caller) check() error {
	if err := c.fromEnviron(); err != nil {
		return err
	}
	switch {
	case len(c.endpoints) == 0:
		return usageError{errors.New("--endpoints names no member")}
	case c.timeout <= 0:
		return usageError{fmt.Errorf("--timeout %v must be positive", c.timeout)}
	}
	return nil
}

// config returns the configuration of a client that knows all endpoints and finds the leader.
func (c *caller) config() (clientv3.Config, error) {
	if err := c.check(); err != nil { // takes endpoints from the environment
		return clientv3.Config{}, err
	}
	cfg := clientv3.Config{Endpoints: c.endpoints, DialOptions: client.DialOptions(), Logger: zap.NewNop()}
	secured := c.secure.given()
	for _, name := range c.endpoints {
		if _, _, err := c.secure.endpoint(name); err != nil {
			return cfg, usageError{err}
		}
		secured = secured || strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "unixs://")
	}
	if !secured {
		return cfg, nil
	}
	files, err := c.secure.config()
	if err != nil {
		return cfg, usageError{err}
	}
	cfg.TLS = files
	return cfg, nil
}

// with runs do with a client. It first checks the endpoints: clientv3 retries until the timeout and
// hides the reason, so a mismatch of all endpoints is returned at once.
func (c *caller) with(do func(*clientv3.Client) error) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if err := c.mismatched(context.Background()); err != nil {
		return err
	}
	cl, err := clientv3.New(cfg)
	if err != nil {
		return usageError{fmt.Errorf("--endpoints %q: %w", c.endpoints, err)}
	}
	defer func() { _ = cl.Close() }() // nothing is under way
	return c.told(do(cl))
}

// within runs do with a client and the timeout of --timeout.
func (c *caller) within(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	return c.with(func(cl *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		return do(ctx, cl)
	})
}

// told adds the endpoints to an error, and after a timeout also the reason.
func (c *caller) told(err error) error {
	if _, ok := errors.AsType[usageError](err); ok || err == nil {
		return err
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok && !errors.Is(err, errLockLost) {
		return err // of the command under kvnode lock
	}
	late := errors.Is(err, context.DeadlineExceeded)
	if s, ok := grpcstatus.FromError(err); ok {
		late = s.Code() == codes.DeadlineExceeded
		err = errors.New(s.Message())
	}
	err = fmt.Errorf("%s: %w", strings.Join(c.endpoints, ","), err)
	if late { // clientv3 has retried until then, and hides the reason
		err = errors.Join(err, errors.Join(c.reach(context.Background())...))
	}
	return err
}

// untilInterrupted cancels its context at the first signal. The second signal has its default effect.
// Signals that the process ignored from the start stay ignored.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) {
		ends = append(ends, os.Interrupt)
	}
	ctx, stop := signal.NotifyContext(ctx, ends...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// secure holds the TLS flags, named like etcdctl's.
type secure struct{ ca, cert, key string }

func (s *secure) flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.ca, "cacert", "", "authorities that sign members' certificates, PEM; by default the system's (ETCDCTL_CACERT)")
	fs.StringVar(&s.cert, "cert", "", "certificate to show, PEM (ETCDCTL_CERT)")
	fs.StringVar(&s.key, "key", "", "its key (ETCDCTL_KEY)")
}

// given reports whether any of the flags is set.
func (s *secure) given() bool { return *s != secure{} }

// config reads the certificate files.
func (s *secure) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		data, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--cacert %s has no certificate in PEM form", s.ca)
		}
	}
	if s.cert != "" || s.key != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("--cert %q and --key %q: %w", s.cert, s.key, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// endpoint returns the dial target and the credentials of one endpoint. Without a scheme, TLS is used
// if any TLS flag is set.
func (s *secure) endpoint(name string) (target string, creds credentials.TransportCredentials, err error) {
	scheme, rest, ok := strings.Cut(name, "://")
	if !ok {
		scheme, rest = "http", name
		if s.given() {
			scheme = "https"
		}
	}
	addr := strings.TrimSuffix(rest, "/")
	target = "passthrough:///" + addr
	switch {
	case addr != "" && (scheme == "unix" || scheme == "unixs"):
		target = "unix:" + addr
	case addr == "" || strings.Contains(addr, "/") || scheme != "http" && scheme != "https":
		return "", nil, fmt.Errorf("--endpoints %q must be host:port, http://host:port, https://host:port or unix:///path", name)
	}
	if scheme == "http" || scheme == "unix" {
		return target, insecure.NewCredentials(), nil
	}
	cfg, err := s.config()
	if err != nil {
		return "", nil, err
	}
	return target, credentials.NewTLS(cfg), nil
}
