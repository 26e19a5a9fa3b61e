package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// header returns a header as of now.
func (a *API) header() *pb.ResponseHeader {
	h := &pb.ResponseHeader{Revision: a.node.Store().Revision()}
	a.fill(h)
	return h
}

// fill completes a header that has a revision. Clients learn from it who leads: see
// package kvnode/client.
func (a *API) fill(h *pb.ResponseHeader) {
	h.ClusterId = a.node.ClusterID()
	h.MemberId = a.node.ID()
	h.RaftTerm = a.node.Term()
	a.leaderID.Put(h, a.node.Leader())
}

// response is an etcd response.
type response interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// propose replicates r and returns the response of type T with a complete
// header. Its error is one for clients.
func propose[T response](ctx context.Context, a *API, r *pb.InternalRaftRequest) (T, error) {
	var none T
	res, err := a.node.Propose(ctx, r)
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return none, clientError(err)
	}
	resp, ok := res.Response.(T)
	if !ok || resp.GetHeader() == nil {
		return none, status.Errorf(codes.Internal, "kvnode: applying the request gave a %T, want a %T with a header", res.Response, none)
	}
	a.fill(resp.GetHeader())
	return resp, nil
}
