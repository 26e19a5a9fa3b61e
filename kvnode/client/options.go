package client

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// DialOptions returns options for clientv3.Config.DialOptions that send requests to the leader. With them,
// clientv3 does not repeat a write that a server has answered with DeadlineExceeded or Canceled.
// Any number of clients may use them at the same time.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		// clientv3's resolver selects round_robin by its own service config.
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + policy + `":{}}]}`),
		grpc.WithChainUnaryInterceptor(intercept),
		grpc.WithChainStreamInterceptor(interceptStream),
	}
}

// call is one attempt of a request. The picker finds it in the context.
type call struct {
	toLeader bool
	endpoint atomic.Pointer[endpoint] // the endpoint it was sent to
}

type callKey struct{}

// intercept marks a request for the picker, and learns the leader from its response. clientv3's retry interceptor is
// outside this one, so each retry passes through intercept.
func intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := &call{toLeader: toLeader(method, req)}
	err := invoke(context.WithValue(ctx, callKey{}, c), method, req, reply, cc, opts...)
	code := status.Code(err)
	switch via := c.endpoint.Load(); {
	case via == nil:
	case code == codes.OK:
		if r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok {
			h := r.GetHeader()
			via.known.recordAnswer(via.name, h.GetMemberId(), fastwire.LeaderOf(h))
		}
	case code == codes.Unavailable, code == codes.DeadlineExceeded && !waitingMethods[method]:
		via.known.recordFailure(via.name, time.Now())
	}
	if (code == codes.DeadlineExceeded || code == codes.Canceled) && ctx.Err() == nil && writes(req) {
		// The server gave up, so the write may be applied. clientv3 would repeat it after these codes, but not after this one.
		return status.Errorf(codes.Unavailable, "the outcome of the write is unknown: %v", err)
	}
	return err
}

// writes reports whether a request changes keys.
func writes(req any) bool {
	switch r := req.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest:
		return true
	case *pb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(r.GetSuccess(), r.GetFailure()), func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil })
	}
	return false
}

// waitingMethods are the methods that wait for other clients.
var waitingMethods = map[string]bool{"/v3lockpb.Lock/Lock": true, "/v3electionpb.Election/Campaign": true}

// leaderServices are the services with requests that go to the leader.
var leaderServices = map[string]bool{
	"etcdserverpb.KV": true, "etcdserverpb.Lease": true, "etcdserverpb.Cluster": true,
	"v3lockpb.Lock": true, "v3electionpb.Election": true,
}

// toLeader reports whether a request goes to the leader.
func toLeader(method string, req any) bool {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return !r.GetSerializable()
	case *pb.TxnRequest:
		return !allSerializable(r.GetSuccess()) || !allSerializable(r.GetFailure())
	case *pb.MemberListRequest:
		return r.GetLinearizable()
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return leaderServices[service]
}

// allSerializable reports whether all ops are serializable reads.
func allSerializable(ops []*pb.RequestOp) bool {
	for _, op := range ops {
		if !op.GetRequestRange().GetSerializable() {
			return false
		}
	}
	return true
}

// interceptStream marks a stream of package fastkv for the picker, and learns from its messages.
// Other streams go in turn.
func interceptStream(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != fastwire.Method {
		return open(ctx, d, cc, method, opts...)
	}
	c := &call{toLeader: true}
	s, err := open(context.WithValue(ctx, callKey{}, c), d, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &stream{s, c}, nil
}

type stream struct {
	grpc.ClientStream
	call *call
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	via := s.call.endpoint.Load()
	if via == nil {
		return err
	}
	if raw, ok := m.(*fastwire.Raw); ok && err == nil {
		member, leader := fastwire.MemberState(*raw)
		via.known.recordAnswer(via.name, member, leader)
		if member != 0 && leader == 0 {
			via.known.recordFailure(via.name, time.Now()) // it may have led, but knows no leader now: ask another one
		}
	}
	if status.Code(err) == codes.Unavailable {
		via.known.recordFailure(via.name, time.Now())
	}
	return err
}

// Metadata of calls that kvnode has and etcd does not. See docs/kvnode.md for the values.
const (
	// MetadataReadMode is the metadata key that selects a read mode.
	MetadataReadMode = fastwire.MetadataReadMode
	// TrailerReadPath names the path of a read, such as lease.
	TrailerReadPath = fastwire.TrailerReadPath
	// TrailerRemaining is the remaining time of the lease in milliseconds.
	TrailerRemaining = fastwire.TrailerRemaining
)
