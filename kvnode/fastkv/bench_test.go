package fastkv

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// echo is a member on whose streams each request is answered by the same response, at once.
type echo struct {
	grpc.ClientConnInterface
	answer []byte
}

// NewStream implements grpc.ClientConnInterface.
func (e *echo) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &echoed{echo: e, ctx: ctx, messages: make(chan fastwire.Raw, 1000)}
	s.messages <- fastwire.AppendWho(nil, 1, 1)
	return s, nil
}

type echoed struct {
	*echo
	grpc.ClientStream
	ctx      context.Context
	messages chan fastwire.Raw
}

// SendMsg implements grpc.ClientStream.
func (s *echoed) SendMsg(m any) error {
	answers := fastwire.AppendWho(nil, 1, 1)
	err := fastwire.Requests(m.(fastwire.Raw), func(data []byte) error { //nolint:errcheck // it is one
		var r fastwire.Request
		err := r.Decode(data)
		answers = fastwire.AppendAnswer(answers, fastwire.Answer{ID: r.ID, Message: s.answer})
		return err
	})
	s.messages <- answers
	return err
}

// RecvMsg implements grpc.ClientStream.
func (s *echoed) RecvMsg(m any) error {
	select {
	case *m.(*fastwire.Raw) = <-s.messages: //nolint:errcheck // it is one
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// BenchmarkGet is a get by so many clients of one stream, with clientv3 and without network and
// server: those are a loop that answers.
func BenchmarkGet(b *testing.B) {
	resp := &pb.RangeResponse{
		Header: &pb.ResponseHeader{ClusterId: 1 << 60, MemberId: 1 << 61, Revision: 1 << 20, RaftTerm: 5},
		Kvs:    []*mvccpb.KeyValue{{Key: []byte("/bench/00000001"), Value: make([]byte, 128), CreateRevision: 5, ModRevision: 1 << 15, Version: 7}},
		Count:  1,
	}
	answer, err := proto.Marshal(resp)
	if err != nil {
		b.Fatal(err)
	}
	for _, clients := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			kv := benchKV(&client{streams: newStreams(ctx, &echo{answer: answer}, func() []string { return nil })})
			b.ReportAllocs()
			b.SetParallelism((clients + 1) / 2)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if r, err := kv.Get(ctx, "/bench/00000001"); err != nil || len(r.Kvs) != 1 {
						b.Error(err)
					}
				}
			})
		})
	}
}

func benchKV(c *client) clientv3.KV {
	return &kv{KV: clientv3.NewKVFromKVClient(c, nil), client: c, send: maxRequest, receive: 4 << 20}
}
