package client

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// DialOptions returns what clientv3.Config.DialOptions needs so that requests go to the
// leader. They may be used for any number of clients, at the same time.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		// clientv3's resolver asks for round_robin by a service config of its own.
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + policy + `":{}}]}`),
		grpc.WithChainUnaryInterceptor(intercept),
		grpc.WithChainStreamInterceptor(interceptStream),
	}
}

// call is one attempt of a request. The picker finds it in the context.
type call struct {
	toLeader bool
	via      atomic.Pointer[endpoint] // where it went
}

type callKey struct{}

// intercept marks a request for the picker, and learns from its response. clientv3's own
// interceptor is outside of it and tries again.
func intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := &call{toLeader: toLeader(method, req)}
	err := invoke(context.WithValue(ctx, callKey{}, c), method, req, reply, cc, opts...)
	via := c.via.Load()
	if via == nil {
		return err
	}
	switch code := status.Code(err); {
	case code == codes.OK:
		if r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok {
			h := r.GetHeader()
			via.known.answered(via.name, h.GetMemberId(), fastwire.LeaderOf(h))
		}
	case code == codes.Unavailable, code == codes.DeadlineExceeded && !waits[method]:
		via.known.failed(via.name, time.Now())
	}
	return err
}

// waits are the methods that are not answered before others give something up.
var waits = map[string]bool{"/v3lockpb.Lock/Lock": true, "/v3electionpb.Election/Campaign": true}

// led are the services whose requests the leader answers best.
var led = map[string]bool{
	"etcdserverpb.KV": true, "etcdserverpb.Lease": true, "etcdserverpb.Cluster": true,
	"v3lockpb.Lock": true, "v3electionpb.Election": true,
}

// toLeader reports whether a request is to go to the leader.
func toLeader(method string, req any) bool {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return !r.GetSerializable()
	case *pb.TxnRequest:
		return !allStale(r.GetSuccess()) || !allStale(r.GetFailure())
	case *pb.MemberListRequest:
		return r.GetLinearizable()
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return led[service]
}

// allStale reports whether ops are serializable reads.
func allStale(ops []*pb.RequestOp) bool {
	for _, op := range ops {
		if !op.GetRequestRange().GetSerializable() {
			return false
		}
	}
	return true
}
