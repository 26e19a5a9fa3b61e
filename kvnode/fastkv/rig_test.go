package fastkv

import (
	"context"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a client. The test plays its servers.
type rig struct {
	*client
	t *testing.T
	// streams are the streams that the client opens.
	streams chan *served
	// refuse is the error for new streams.
	refuse atomic.Pointer[error]
	calls  atomic.Int64
	late   bool // answers arrive only when their stream is cancelled
}

// newRig returns a rig that ends with the test. A synctest bubble waits for its goroutines.
func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r := &rig{t: t, streams: make(chan *served, 100)}
	r.client = &client{KVClient: r.byCalls(), streams: newStreamManager(ctx, r, func() []string { return nil })}
	return r
}

// byCalls is the server's answer to calls.
func (r *rig) byCalls() pb.KVClient { return called{calls: &r.calls} }

type called struct {
	pb.KVClient
	calls *atomic.Int64
}

func (c called) Range(context.Context, *pb.RangeRequest, ...grpc.CallOption) (*pb.RangeResponse, error) {
	c.calls.Add(1)
	return &pb.RangeResponse{Count: -1}, nil
}

func (c called) Put(context.Context, *pb.PutRequest, ...grpc.CallOption) (*pb.PutResponse, error) {
	c.calls.Add(1)
	return &pb.PutResponse{}, nil
}

func (c called) DeleteRange(context.Context, *pb.DeleteRangeRequest, ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	c.calls.Add(1)
	return &pb.DeleteRangeResponse{}, nil
}

func (c called) Txn(context.Context, *pb.TxnRequest, ...grpc.CallOption) (*pb.TxnResponse, error) {
	c.calls.Add(1)
	return &pb.TxnResponse{}, nil
}

// Invoke implements grpc.ClientConnInterface.
func (*rig) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Internal, "unexpected call")
}

// NewStream implements grpc.ClientConnInterface.
func (r *rig) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := r.refuse.Load(); err != nil {
		return nil, *err
	}
	if method != fastwire.Method {
		r.t.Errorf("a stream of %s, want %s", method, fastwire.Method)
	}
	s := &served{t: r.t, ctx: ctx, late: r.late, requests: make(chan fastwire.Raw), answers: make(chan fastwire.Raw), ends: make(chan error, 1)}
	r.streams <- s
	return s, nil
}

// accept returns the next stream, on which member 1 greets the client.
func (r *rig) accept(leader uint64) *served {
	r.t.Helper()
	s := <-r.streams
	s.answers <- fastwire.AppendMember(nil, 1, leader)
	return s
}

// served is the server's end of a stream.
type served struct {
	grpc.ClientStream // panics
	t                 *testing.T
	ctx               context.Context
	requests, answers chan fastwire.Raw
	ends              chan error
	pending           []fastwire.Request
	late              bool
}

// SendMsg implements grpc.ClientStream.
func (s *served) SendMsg(m any) error {
	raw, _ := m.(fastwire.Raw)
	select {
	case s.requests <- raw:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// RecvMsg implements grpc.ClientStream.
func (s *served) RecvMsg(m any) error {
	into, _ := m.(*fastwire.Raw)
	if s.late {
		<-s.ctx.Done()
		*into = <-s.answers
		return nil
	}
	select {
	case *into = <-s.answers:
		return nil
	case err := <-s.ends:
		return err
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// next returns the next request.
func (s *served) next() fastwire.Request {
	s.t.Helper()
	for len(s.pending) == 0 {
		err := fastwire.Requests(<-s.requests, func(data []byte) error {
			var r fastwire.Request
			err := r.Decode(data)
			s.pending = append(s.pending, r)
			return err
		})
		if err != nil {
			s.t.Error(err)
		}
	}
	r := s.pending[0]
	s.pending = s.pending[1:]
	return r
}

// answer answers a request.
func (s *served) answer(id uint64, m proto.Message) {
	s.t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		s.t.Error(err)
	}
	s.answers <- fastwire.AppendAnswer(nil, fastwire.Answer{ID: id, Message: data})
}

// fail answers a request with an error.
func (s *served) fail(id uint64, code codes.Code, text string) {
	s.answers <- fastwire.AppendAnswer(nil, fastwire.Answer{ID: id, Code: uint32(code), Text: []byte(text)})
}

// mutations are the requests that must not be repeated.
func (r *rig) mutations() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Put": func(ctx context.Context) error { _, err := r.Put(ctx, &pb.PutRequest{Key: []byte("k")}); return err },
		"DeleteRange": func(ctx context.Context) error {
			_, err := r.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("k")})
			return err
		},
		"Txn": func(ctx context.Context) error { _, err := r.Txn(ctx, &pb.TxnRequest{}); return err },
	}
}

// get reads, and returns the count in the response, which is -1 for a call.
func (r *rig) get(ctx context.Context, opts ...grpc.CallOption) (int64, error) {
	resp, err := r.Range(ctx, &pb.RangeRequest{Key: []byte("k")}, opts...)
	return resp.GetCount(), err
}
