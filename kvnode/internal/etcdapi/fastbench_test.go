package etcdapi

import (
	"context"
	"fmt"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/etcdapi/callmetrics"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// endless is a stream whose client sends the same message over and over, and takes all answers.
type endless struct {
	grpc.ServerStream

	ctx     context.Context
	message fastwire.Raw
	window  chan struct{} // nil, or filled by each message and emptied by its answers
	left    int           // messages
	batch   int
	answers int
}

// Context implements grpc.ServerStream.
func (e *endless) Context() context.Context { return e.ctx }

// RecvMsg implements grpc.ServerStream.
func (e *endless) RecvMsg(m any) error {
	if e.left == 0 {
		return io.EOF
	}
	if e.window != nil {
		e.window <- struct{}{}
	}
	e.left--
	*m.(*fastwire.Raw) = e.message //nolint:errcheck // it is one
	return nil
}

// SendMsg implements grpc.ServerStream.
func (e *endless) SendMsg(m any) error {
	message, _ := m.(*outgoing)
	defer message.Put(nil) // it is written
	if e.window == nil {
		return nil
	}
	_, err := fastwire.Answers(message.data, func(fastwire.Answer) {
		if e.answers++; e.answers%e.batch == 0 {
			<-e.window
		}
	})
	return err
}

// BenchmarkFast is one request of a stream, from message to message, without network: gets
// under a lease, and puts that are applied as soon as they are proposed, so many a message.
func BenchmarkFast(b *testing.B) {
	get, put := &pb.RangeRequest{Key: []byte("key")}, &pb.PutRequest{Key: []byte("key"), Value: make([]byte, 128)}
	for _, c := range []struct {
		method  string
		request proto.Message
	}{{"Range", get}, {"Put", put}} {
		for _, batch := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("method=%s/batch=%d", c.method, batch), func(b *testing.B) {
				n := newFakeNode(b)
				n.leased.Store(true)
				s := &kvServer{API: New(n, Config{Metrics: callmetrics.New(false)})}
				if _, err := s.Put(b.Context(), put); err != nil {
					b.Fatal(err)
				}
				data, err := proto.Marshal(c.request)
				if err != nil {
					b.Fatal(err)
				}
				e := &endless{ctx: b.Context(), left: b.N/batch + 1, batch: batch}
				if c.method == "Put" { // an ID is not used twice at the same time
					e.window = make(chan struct{}, 1)
				}
				for i := range batch {
					e.message = fastwire.AppendRequest(e.message, fastwire.Request{ID: uint64(i + 1), Method: []byte(c.method), Message: data})
				}
				b.ReportAllocs()
				b.ResetTimer()
				if err := serveFast(s, e); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
