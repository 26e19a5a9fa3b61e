package server

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/server/status"
)

// shutter keeps clients out while this member compares its data with the others',
// which do the same and must be answered.
type shutter struct {
	down atomic.Bool
}

// keyless are the methods that show no key. Keep-alives are among them: a member
// that leads counts the time of TTL leases behind its shutter, too, and would revoke
// those that nobody could renew.
var keyless = map[string]bool{
	pb.Lease_LeaseKeepAlive_FullMethodName: true,
	pb.Maintenance_HashKV_FullMethodName:   true,
	pb.Maintenance_Status_FullMethodName:   true,
	status.Method:                          true,
}

const checking = "kvnode: this member compares its data with the others' before it serves"

func (s *shutter) check(method string) error {
	if s.down.Load() && !keyless[method] {
		return grpcstatus.Error(codes.Unavailable, checking)
	}
	return nil
}

// options make a server of gRPC one behind the shutter.
func (s *shutter) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := s.check(info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := s.check(info.FullMethod); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}
