// Package kvclient configures etcd's client for the demo, the benchmarks and the
// end-to-end tests. It makes each request once, since tests must know which requests
// were sent to judge the answers. It reconnects soon, since the tests restart members
// soon. It records the path of each read.
package kvclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/kvnode/client"
)

// Close closes all clients.
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

// Answer is the answer to a request for one key.
type Answer struct {
	// Value and Mod, the mod revision, are what the key holds after the request;
	// Mod is 0 where there is no such key.
	Value string
	Mod   int64
	// Revision is the store's, Term the member's.
	Revision int64
	Term     uint64
	Served
	// Called and Returned are readings of this process's clock.
	Called, Returned time.Time
}

// Get reads one key.
func Get(ctx context.Context, c *clientv3.Client, key string, opts ...clientv3.OpOption) (Answer, error) {
	var a Answer
	ctx = WithServed(ctx, &a.Served)
	a.Called = time.Now()
	resp, err := c.Get(ctx, key, opts...)
	a.Returned = time.Now()
	if err != nil {
		return a, err
	}
	a.Revision, a.Term = resp.Header.GetRevision(), resp.Header.GetRaftTerm()
	if len(resp.Kvs) > 0 {
		a.Value, a.Mod = string(resp.Kvs[0].GetValue()), resp.Kvs[0].GetModRevision()
	}
	return a, nil
}

// Served describes how a read was served, as reported by the server. etcd reports nothing.
type Served struct {
	// Path is the way in which the read was made linearizable, empty if not reported.
	Path string
	// Remaining is how long the lease would still have served reads, negative if not
	// reported.
	Remaining time.Duration
}

type servedKey struct{}

// WithServed returns a context for a read that stores in s how the read was served.
func WithServed(ctx context.Context, s *Served) context.Context {
	*s = Served{Remaining: -1}
	return context.WithValue(ctx, servedKey{}, s)
}

// rangeMethod is the gRPC method of reads.
const rangeMethod = "/etcdserverpb.KV/Range"

// keepServed is a client interceptor that reads the trailers.
func keepServed(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	into, ok := ctx.Value(servedKey{}).(*Served)
	if !ok || method != rangeMethod {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	var trailer metadata.MD
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...)
	into.take(trailer)
	return err
}

func (s *Served) take(trailer metadata.MD) {
	if v := trailer.Get(client.TrailerReadPath); len(v) == 1 {
		s.Path = v[0]
	}
	if v := trailer.Get(client.TrailerRemaining); len(v) == 1 {
		if ms, err := strconv.ParseInt(v[0], 10, 64); err == nil {
			s.Remaining = time.Duration(ms) * time.Millisecond
		}
	}
}
