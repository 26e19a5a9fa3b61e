package fastkv

import (
	"context"
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// counts answers calls.
type counts struct {
	pb.UnimplementedKVServer
	n int64
}

func (c counts) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Count: c.n}, nil
}

// counting answers every request with a count of so many, by calls and by streams, and returns
// its address.
func counting(t *testing.T, count int64) string {
	t.Helper()
	serve := func(_ any, s grpc.ServerStream) error {
		if err := s.SendMsg(fastwire.Raw(fastwire.AppendWho(nil, 1, 1))); err != nil {
			return err
		}
		data, _ := proto.Marshal(&pb.RangeResponse{Count: count})
		for {
			var m, out fastwire.Raw
			if err := s.RecvMsg(&m); err != nil {
				return err
			}
			err := fastwire.Requests(m, func(b []byte) error {
				var r fastwire.Request
				err := r.Decode(b)
				out = fastwire.AppendAnswer(out, fastwire.Answer{ID: r.ID, Message: data})
				return err
			})
			if err != nil {
				return err
			}
			if err := s.SendMsg(out); err != nil {
				return err
			}
		}
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(fastwire.NewCodec()))
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: fastwire.Service, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: fastwire.Stream, Handler: serve, ServerStreams: true, ClientStreams: true}},
	}, nil)
	pb.RegisterKVServer(g, counts{n: count})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { _ = g.Serve(l); close(served) }()
	t.Cleanup(func() { g.Stop(); <-served })
	return l.Addr().String()
}

// Once a client is told of other endpoints, nothing goes to the former ones, as it is with
// calls: they may be of another cluster.
func TestOtherEndpoints(t *testing.T) {
	first, second := counting(t, 1), counting(t, 2)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{first}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := Use(c); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 2} {
		if i == 1 {
			c.SetEndpoints(second)
		}
		resp, err := c.Get(t.Context(), "k")
		if err != nil || resp.Count != want {
			t.Errorf("a read by way of endpoint %d = %v, %v, want count %d", i+1, resp, err, want)
		}
	}
}
