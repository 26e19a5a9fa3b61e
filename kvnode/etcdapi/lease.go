package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// leaseServer is the Lease service: etcd's client leases, which are called TTL
// leases here and have nothing to do with the leader lease.
type leaseServer struct {
	*API
	pb.UnsafeLeaseServer
}

// errNoTTL is what all of them answer.
var errNoTTL = status.Error(codes.Unimplemented, "kvnode: this version has no client (TTL) leases")

// LeaseGrant is not there yet.
func (*leaseServer) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return nil, errNoTTL
}

// LeaseRevoke is not there yet.
func (*leaseServer) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return nil, errNoTTL
}

// LeaseKeepAlive is not there yet.
func (*leaseServer) LeaseKeepAlive(grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	return errNoTTL
}

// LeaseTimeToLive is not there yet.
func (*leaseServer) LeaseTimeToLive(context.Context, *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return nil, errNoTTL
}

// LeaseLeases is not there yet.
func (*leaseServer) LeaseLeases(context.Context, *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	return nil, errNoTTL
}
