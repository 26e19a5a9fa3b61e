package etcdapi

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/kvnode"
)

// leaseNode permits everything at once, under a lease, as a leader does.
type leaseNode struct{ *fakeNode }

func (leaseNode) Read(context.Context, kvnode.ReadMode) (kvnode.Read, error) {
	return kvnode.Read{Path: "lease", Remaining: 850 * time.Millisecond, Term: testTerm}, nil
}

// sink is the gRPC stream under a request. Like the real one it copies trailers.
type sink struct {
	trailer metadata.MD
	deaf    bool // it does not, so that the difference shows what they cost
}

func (s *sink) Method() string               { return "/etcdserverpb.KV/Range" }
func (s *sink) SetHeader(metadata.MD) error  { return nil }
func (s *sink) SendHeader(metadata.MD) error { return nil }
func (s *sink) SetTrailer(md metadata.MD) error {
	if !s.deaf {
		s.trailer = metadata.Join(nil, md)
	}
	return nil
}

// BenchmarkRange is one linearizable get under a lease, from interceptor to
// response, without network. The parts add up: the handler, what gRPC does with
// trailers, and the interceptor with its deadline.
func BenchmarkRange(b *testing.B) {
	n := newFakeNode(b)
	s := &kvServer{API: New(leaseNode{n}, Config{})}
	if _, err := s.Put(b.Context(), &pb.PutRequest{Key: []byte("key"), Value: make([]byte, 256)}); err != nil {
		b.Fatal(err)
	}
	incoming := metadata.NewIncomingContext(b.Context(), metadata.Pairs(
		":authority", "a", "content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", "client-api-version", "3.7"))
	info := &grpc.UnaryServerInfo{FullMethod: "/etcdserverpb.KV/Range"}
	handle := func(ctx context.Context, req any) (any, error) { return s.Range(ctx, req.(*pb.RangeRequest)) } //nolint:errcheck // it is one
	get := &pb.RangeRequest{Key: []byte("key")}
	for _, trailers := range []bool{false, true} {
		for _, intercepted := range []bool{false, true} {
			b.Run(fmt.Sprintf("trailers=%v/interceptor=%v", trailers, intercepted), func(b *testing.B) {
				ctx := grpc.NewContextWithServerTransportStream(incoming, &sink{deaf: !trailers})
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if intercepted {
						_, err = s.interceptUnary(ctx, get, info, handle)
					} else {
						_, err = s.Range(ctx, get)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
