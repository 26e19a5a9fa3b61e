package fastkv

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// maxRequest limits a request on the stream, including its metadata. A larger request would delay those behind it for
// little benefit: the cost of a call is small compared with processing it.
const maxRequest = 64 << 10

// Use sends c.KV's requests over a stream: those of its methods and of everything built on it
// afterwards, such as transactions, sessions and locks. Closing c ends the stream.
//
// Use fails and does not change c if clientv3 has not created c.KV itself, for example a
// namespace. Wrap it after Use.
func Use(c *clientv3.Client) error {
	if !reflect.DeepEqual(c.KV, clientv3.NewKV(c)) {
		return fmt.Errorf("fastkv: the client's KV is a %T and not the one that clientv3 created, so Use would drop it: wrap it after Use", c.KV)
	}
	c.KV = newKV(newClient(c), c)
	return nil
}

// New returns a client of the KV service over c's connection. Closing c ends it.
func New(c *clientv3.Client) pb.KVClient { return newClient(c) }

func newClient(c *clientv3.Client) *client {
	return &client{KVClient: clientv3.RetryKVClient(c), streams: newStreamManager(c.Ctx(), c.ActiveConnection(), c.Endpoints)}
}

// client sends requests over a stream if it can, and others as calls.
type client struct {
	pb.KVClient // calls, as clientv3 makes and repeats them, including Compact and RangeStream

	streams *streamManager
	leaders fastwire.LeaderField
}

// errUnsent means that the server has not begun a request, so a call may make it.
var errUnsent = errors.New("fastkv: no stream for this request")

// Range reads. If the read fails with Unavailable, a call repeats it, which clientv3 retries.
func (c *client) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	out := new(pb.RangeResponse)
	err := c.do(ctx, "Range", in, out, opts)
	if errors.Is(err, errUnsent) || status.Code(err) == codes.Unavailable {
		return c.KVClient.Range(ctx, in, opts...)
	}
	return orError(out, err)
}

// Put puts a key.
func (c *client) Put(ctx context.Context, in *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	out := new(pb.PutResponse)
	err := c.do(ctx, "Put", in, out, opts)
	if errors.Is(err, errUnsent) {
		return c.KVClient.Put(ctx, in, opts...)
	}
	return orError(out, err)
}

// DeleteRange deletes keys.
func (c *client) DeleteRange(ctx context.Context, in *pb.DeleteRangeRequest, opts ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	out := new(pb.DeleteRangeResponse)
	err := c.do(ctx, "DeleteRange", in, out, opts)
	if errors.Is(err, errUnsent) {
		return c.KVClient.DeleteRange(ctx, in, opts...)
	}
	return orError(out, err)
}

// Txn executes a transaction.
func (c *client) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	out := new(pb.TxnResponse)
	err := c.do(ctx, "Txn", in, out, opts)
	if errors.Is(err, errUnsent) {
		return c.KVClient.Txn(ctx, in, opts...)
	}
	return orError(out, err)
}

func orError[R any](out *R, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	return out, nil
}

// do makes a request on the stream. It fails with errUnsent, or with a status as a call would.
func (c *client) do(ctx context.Context, method string, in, out proto.Message, opts []grpc.CallOption) error {
	send, receive, ok := callLimits(opts)
	size := proto.Size(in)
	if !ok || size > min(send, maxRequest) {
		return errUnsent
	}
	s := c.streams.current(ctx)
	if s == nil {
		return errUnsent
	}
	r := fastwire.Request{Method: []byte(method)}
	var err error
	if r.Message, err = (proto.MarshalOptions{UseCachedSize: true}).Marshal(in); err != nil {
		return errUnsent // a call returns the error
	}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		for key, values := range md {
			for _, v := range values {
				size += len(key) + len(v) + 32 // as HTTP/2 and the server count
				r.Metadata = append(r.Metadata, []byte(key), []byte(v))
			}
		}
		if size > maxRequest {
			return errUnsent // the server would end the stream for all requests
		}
	}
	data, err := s.call(ctx, r, receive)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(data, out); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// callLimits returns the limits of a request and of its response. ok is false if an option
// requires a call.
func callLimits(opts []grpc.CallOption) (send, receive int, ok bool) {
	send, receive = maxRequest, 4<<20 // gRPC's default
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.MaxSendMsgSizeCallOption:
			send = o.MaxSendMsgSize
		case grpc.MaxRecvMsgSizeCallOption:
			receive = o.MaxRecvMsgSize
		case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption, grpc.OnFinishCallOption,
			grpc.PerRPCCredsCallOption, grpc.CompressorCallOption, grpc.ContentSubtypeCallOption,
			grpc.CustomCodecCallOption, grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption:
			return 0, 0, false
		}
	}
	return send, receive, true
}

// kv is clientv3's KV with a faster path for a get of one key without options. Most requests
// under a lease are such gets, and the path through clientv3 (allocating an operation, a request
// and call options) and package proto takes longer than the stream.
type kv struct {
	clientv3.KV // clientv3's KV over client

	client  *client
	calls   clientv3.KV // clientv3's KV over calls
	send    int         // limit of a request; 0 disables the faster path
	receive int         // limit of its response
}

func newKV(c *client, of *clientv3.Client) clientv3.KV {
	k := &kv{KV: clientv3.NewKVFromKVClient(c, of), client: c, calls: clientv3.NewKV(of)}
	k.send, k.receive = messageLimits(of)
	return k
}

// messageLimits returns the message limits of a client. The client passes them to its calls only,
// so messageLimits captures the options of a call.
func messageLimits(of *clientv3.Client) (send, receive int) {
	var o captureOptions
	_, _ = clientv3.NewKVFromKVClient(&o, of).Get(context.Background(), "") // it fails
	send, receive, ok := callLimits(o.all)
	if !ok {
		return 0, 0
	}
	return min(send, maxRequest), receive
}

// captureOptions captures the options of a call without making it.
type captureOptions struct {
	pb.KVClient
	all []grpc.CallOption
}

// Range implements pb.KVClient.
func (o *captureOptions) Range(_ context.Context, _ *pb.RangeRequest, all ...grpc.CallOption) (*pb.RangeResponse, error) {
	o.all = all
	return nil, errUnsent
}

// Get implements clientv3.KV. Only its duration differs from that of the embedded KV.
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

// getOverhead is the maximum size of an encoded get without its key.
const getOverhead = 8

// get makes a request on the stream, like client.do.
func (k *kv) get(ctx context.Context, key string) (*pb.RangeResponse, error) {
	if key == "" || len(key)+getOverhead > k.send {
		return nil, errUnsent // a call returns the error
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
	if resp := fastwire.DecodeGetResponse(data, &k.client.leaders); resp != nil {
		return resp, nil
	}
	resp := new(pb.RangeResponse)
	if err := proto.Unmarshal(data, resp); err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return resp, nil
}

var methodRange = []byte("Range")
