package kvclient

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/kvnode/client"
)

// Served is how a read was served, by the server's own word. Etcd says nothing.
type Served struct {
	// Path is how the read was made linearizable, empty if nothing is said.
	Path string
	// Remaining is for how long the lease would still have served; it is negative
	// if nothing is said.
	Remaining time.Duration
}

type servedKey struct{}

// WithServed has a read under the context it returns leave in s how it was served.
func WithServed(ctx context.Context, s *Served) context.Context {
	*s = Served{Remaining: -1}
	return context.WithValue(ctx, servedKey{}, s)
}

// rangeMethod is that of reads.
const rangeMethod = "/etcdserverpb.KV/Range"

// keepServed takes it from the trailers.
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
