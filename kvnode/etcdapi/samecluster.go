package etcdapi

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode"
)

// sameCluster refuses what a member of another cluster answers: the leader may be
// gone, and its address used again. Such a member would say of each TTL lease that
// there is none.
type sameCluster uint64

// options make a connection refuse it. Requests are tried again then, until the
// leader is known at another address.
func (c sameCluster) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if err := call(ctx, method, req, reply, conn, o...); err != nil {
				return err
			}
			return c.check(reply)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, d, conn, method, o...)
			return &sameClusterStream{ClientStream: stream, cluster: c}, err
		}),
	}
}

func (c sameCluster) check(reply any) error {
	r, ok := reply.(response)
	if ok && r.GetHeader().GetClusterId() != uint64(c) {
		return fmt.Errorf("%w: who answers at the leader's address is of cluster %x, not %x", kvnode.ErrNotLeader, r.GetHeader().GetClusterId(), uint64(c))
	}
	return nil
}

type sameClusterStream struct {
	grpc.ClientStream
	cluster sameCluster
}

// RecvMsg implements grpc.ClientStream.
func (s *sameClusterStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	return s.cluster.check(m)
}
