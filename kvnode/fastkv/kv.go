package fastkv

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// kv is clientv3's KV, with a shorter way for a get of one key without options. Such a get is
// most of what is asked of a lease, and its way through clientv3 (an operation, a request, and
// the options of a call, each made anew) and package proto takes longer than the stream.
type kv struct {
	clientv3.KV // what clientv3 makes of client

	client  *client
	calls   clientv3.KV // what it makes by itself
	send    int         // bound of a request; none goes the shorter way if it is 0
	receive int         // bound of its response
}

func newKV(c *client, of *clientv3.Client) clientv3.KV {
	k := &kv{KV: clientv3.NewKVFromKVClient(c, of), client: c, calls: clientv3.NewKV(of)}
	k.send, k.receive = bounds(of)
	return k
}

// bounds returns those that a client gives to its calls, which it tells nobody but those.
func bounds(of *clientv3.Client) (send, receive int) {
	var o options
	_, _ = clientv3.NewKVFromKVClient(&o, of).Get(context.Background(), "") // fails
	send, receive, ok := limits(o.all)
	if !ok {
		return 0, 0
	}
	return min(send, maxRequest), receive
}

// options keeps those of the call that it is asked for, and makes none.
type options struct {
	pb.KVClient
	all []grpc.CallOption
}

// Range implements pb.KVClient.
func (o *options) Range(_ context.Context, _ *pb.RangeRequest, all ...grpc.CallOption) (*pb.RangeResponse, error) {
	o.all = all
	return nil, errUnsent
}

// Get implements clientv3.KV. It differs from what it stands before in how long it takes alone.
func (k *kv) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if len(opts) > 0 {
		return k.KV.Get(ctx, key, opts...)
	}
	if _, ok := metadata.FromOutgoingContext(ctx); ok {
		return k.KV.Get(ctx, key)
	}
	resp, err := k.get(ctx, key)
	if errors.Is(err, errUnsent) || status.Code(err) == codes.Unavailable {
		return k.calls.Get(ctx, key)
	}
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	return (*clientv3.GetResponse)(resp), nil
}

// getOverhead is what a get takes beside its key.
const getOverhead = 8

// get makes a request on the stream, as client.do does.
func (k *kv) get(ctx context.Context, key string) (*pb.RangeResponse, error) {
	if key == "" || len(key)+getOverhead > k.send {
		return nil, errUnsent // a call is refused in its own words
	}
	s := k.client.streams.current(ctx)
	if s == nil {
		return nil, errUnsent
	}
	message := fastwire.AppendGet(make([]byte, 0, len(key)+getOverhead), key)
	data, err := s.call(ctx, fastwire.Request{Method: methodRange, Message: message}, k.receive)
	if err != nil {
		return nil, err
	}
	if resp := fastwire.Got(data, &k.client.leaders); resp != nil {
		return resp, nil
	}
	resp := new(pb.RangeResponse)
	if err := proto.Unmarshal(data, resp); err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return resp, nil
}

var methodRange = []byte("Range")
