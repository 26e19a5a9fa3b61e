package etcdapi

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// fastRig is a stream of service Fast whose client is the test.
type fastRig struct {
	grpc.ServerStream // panics
	*fakeNode

	t       *testing.T
	api     *API
	ctx     context.Context
	cancel  context.CancelCauseFunc
	in, out chan fastwire.Raw
	taken   int   // messages
	ended   error // once over is closed
	over    chan struct{}
	answers []fastwire.Answer
	ending  []uint64 // IDs of the last request taken, as the member has said
}

// onStream runs test on a stream, in a bubble. The test reads what is sent when it wants.
func onStream(t *testing.T, test func(*fastRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &fastRig{t: t, fakeNode: newFakeNode(t), in: make(chan fastwire.Raw), out: make(chan fastwire.Raw), over: make(chan struct{})}
		r.ctx, r.cancel = context.WithCancelCause(t.Context())
		r.api = New(r.fakeNode, Config{})
		go func() {
			defer close(r.over)
			r.ended = serveFast(&kvServer{API: r.api}, r)
		}()
		member, leader := fastwire.Who(<-r.out)
		if member != testMember || leader != testMember {
			t.Errorf("the stream begins with member %d, leader %d", member, leader)
		}
		test(r)
		r.cancel(context.Canceled)
		<-r.over
	})
}

// Context implements grpc.ServerStream.
func (r *fastRig) Context() context.Context { return r.ctx }

// RecvMsg implements grpc.ServerStream.
func (r *fastRig) RecvMsg(m any) error {
	into, _ := m.(*fastwire.Raw)
	select {
	case message, ok := <-r.in:
		if !ok {
			return io.EOF
		}
		*into = message
		r.taken++
		return nil
	case <-r.ctx.Done():
		return status.FromContextError(r.ctx.Err()).Err()
	}
}

// SendMsg implements grpc.ServerStream.
func (r *fastRig) SendMsg(m any) error {
	message, _ := m.(*outgoing)
	select {
	case r.out <- bytes.Clone(message.data):
		message.Put(nil) // it is written
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// items encodes requests: IDs count up from first.
func (r *fastRig) items(first, n int, method string, m proto.Message) (message fastwire.Raw) {
	r.t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range n {
		message = fastwire.AppendRequest(message, fastwire.Request{ID: uint64(first + i), Method: []byte(method), Message: data})
	}
	return message
}

// fill sends gets of k, so many a message, until the stream is not read. It returns how many were
// sent. The last message need not have been taken as a whole.
func (r *fastRig) fill(batch int) (sent int) {
	r.t.Helper()
	for {
		synctest.Wait()
		select {
		case r.in <- r.items(sent, batch, "Range", getK):
			sent += batch
		default:
			return sent
		}
	}
}

// aloneItems is about how many small requests a stream has under way at most that is alone.
const aloneItems = maxFastBytes / 3 / (requestCost + 80)

// next returns the next answer, read from the next message if need be.
func (r *fastRig) next() fastwire.Answer {
	r.t.Helper()
	for len(r.answers) == 0 {
		select {
		case message := <-r.out:
			r.read(message)
		case <-r.over:
			r.t.Fatalf("the stream has ended with %v", r.ended)
		}
	}
	a := r.answers[0]
	r.answers = r.answers[1:]
	return a
}

// read takes note of what a message says.
func (r *fastRig) read(message fastwire.Raw) {
	r.t.Helper()
	state, err := fastwire.Answers(message, func(a fastwire.Answer) { r.answers = append(r.answers, a) })
	if err != nil {
		r.t.Fatal(err)
	}
	if state.Ending {
		r.ending = append(r.ending, state.Last)
	}
}

// want fails unless the next answer is that.
func (r *fastRig) want(id uint64, code codes.Code, text string) {
	r.t.Helper()
	if a := r.next(); a.ID != id || codes.Code(a.Code) != code || !strings.Contains(string(a.Text), text) {
		r.t.Errorf("answer to %d: %v %q, want to %d: %v %q", a.ID, codes.Code(a.Code), a.Text, id, code, text)
	}
}

// wantEnd fails unless the stream ends so.
func (r *fastRig) wantEnd(code codes.Code, text string) {
	r.t.Helper()
	<-r.over
	if st := status.Convert(r.ended); st.Code() != code || !strings.Contains(st.Message(), text) {
		r.t.Errorf("the stream ends with %v, want %v %q", r.ended, code, text)
	}
}

var getK = &pb.RangeRequest{Key: []byte("k")}

// hang has reads wait until their time is over.
func hang(ctx context.Context, _ kvnode.ReadMode) error {
	<-ctx.Done()
	return ctx.Err()
}
