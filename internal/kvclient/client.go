// Package kvclient configures etcd's client for the demo, the benchmarks and the
// end-to-end tests. It makes each request once, since tests must know which requests
// were sent to judge the answers. It reconnects soon, since the tests restart members
// soon. It records the path of each read.
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
