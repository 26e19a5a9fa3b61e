package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// watchServer is the Watch service.
type watchServer struct {
	*API
	pb.UnsafeWatchServer
}

// Watch is not there yet.
func (*watchServer) Watch(grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	return status.Error(codes.Unimplemented, "kvnode: this version does not watch keys")
}
