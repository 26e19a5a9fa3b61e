// Package kvclient is etcd's client as the demo, the benchmarks and the
// end-to-end tests use it. It makes each request once, since who counts or judges
// what was answered must know what was asked, it tries soon to connect again,
// since members come back soon, and it keeps how a read was served.
package kvclient

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Close closes all of them: clients, or what is made of clients.
func Close[C io.Closer](all []C) error {
	errs := make([]error, len(all))
	for i, c := range all {
		errs[i] = c.Close()
	}
	return errors.Join(errs...)
}

// New returns a client that chooses among endpoints, of the form host:port.
// Secure is nil for plain text. The caller closes the client.
func New(secure *tls.Config, endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	opts = append(slices.Clip(opts),
		grpc.WithChainUnaryInterceptor(keepServed),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3, Jitter: 0.2, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	c, err := clientv3.New(clientv3.Config{
		Endpoints:       endpoints,
		TLS:             secure,
		MaxUnaryRetries: 1,
		Logger:          zap.NewNop(),
		DialOptions:     opts,
	})
	if err != nil {
		return nil, fmt.Errorf("client of %v: %w", endpoints, err)
	}
	return c, nil
}
