package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
				return whose(ctx, method, conn, err)
			}
			return c.check(reply)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, d, conn, method, o...)
			return &sameClusterStream{stream, c, func(err error) error { return whose(ctx, method, conn, err) }}, err
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

// whose returns err if it came from this cluster. It has no header, so that whoever
// answers is asked for one: a stranger's word is final otherwise.
func whose(ctx context.Context, method string, conn *grpc.ClientConn, err error) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
		return err // it says nothing of the request
	}
	if status.Convert(err).Message() == status.Convert(rpctypes.ErrGRPCNotLeader).Message() {
		return err // another one is asked
	}
	if method == pb.Maintenance_Status_FullMethodName || errors.Is(err, io.EOF) {
		return err
	}
	if _, failed := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}); failed != nil {
		return failed
	}
	return err
}

type sameClusterStream struct {
	grpc.ClientStream
	cluster sameCluster
	whose   func(error) error
}

// RecvMsg implements grpc.ClientStream.
func (s *sameClusterStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return s.whose(err)
	}
	return s.cluster.check(m)
}
