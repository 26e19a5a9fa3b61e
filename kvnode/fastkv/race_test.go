package fastkv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// mirror is a member that answers each get with its own key: some in pieces, several in a
// message, in any order, and also after the call was cancelled.
type mirror struct {
	grpc.ClientConnInterface
	t *testing.T
}

// NewStream implements grpc.ClientConnInterface.
func (m *mirror) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &mirrored{mirror: m, ctx: ctx, messages: make(chan fastwire.Raw, 100)}
	s.messages <- fastwire.AppendMember(nil, 1, 1)
	return s, nil
}

type mirrored struct {
	*mirror
	grpc.ClientStream
	ctx      context.Context
	messages chan fastwire.Raw
}

// SendMsg implements grpc.ClientStream.
func (s *mirrored) SendMsg(m any) error {
	raw, _ := m.(fastwire.Raw)
	var asked []fastwire.Request
	err := fastwire.Requests(raw, func(data []byte) error {
		var r fastwire.Request
		err := r.Decode(data)
		if !r.Cancel {
			asked = append(asked, r)
		}
		return err
	})
	rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	later := rand.IntN(len(asked) + 1)
	s.answer(asked[later:])
	time.AfterFunc(100*time.Microsecond, func() { s.answer(asked[:later]) })
	return err
}

func (s *mirrored) answer(asked []fastwire.Request) {
	answers := fastwire.AppendMember(nil, 1, 1)
	for _, r := range asked {
		answers = s.appendTo(answers, r)
	}
	select {
	case s.messages <- answers:
	case <-s.ctx.Done():
	}
}

func (s *mirrored) appendTo(answers []byte, r fastwire.Request) []byte {
	in := new(pb.RangeRequest)
	if err := proto.Unmarshal(r.Message, in); err != nil {
		s.t.Error(err)
	}
	out, err := proto.Marshal(&pb.RangeResponse{Header: &pb.ResponseHeader{MemberId: 1}, Count: 1, Kvs: []*mvccpb.KeyValue{{Key: in.GetKey(), Value: in.GetKey()}}})
	if err != nil {
		s.t.Error(err)
	}
	if cut := rand.IntN(2 * len(out)); cut < len(out) {
		answers = fastwire.AppendAnswer(answers, fastwire.Answer{ID: r.ID, Message: out[:cut], More: true})
		out = out[cut:]
	}
	return fastwire.AppendAnswer(answers, fastwire.Answer{ID: r.ID, Message: out})
}

// RecvMsg implements grpc.ClientStream.
func (s *mirrored) RecvMsg(m any) error {
	into, _ := m.(*fastwire.Raw)
	select {
	case *into = <-s.messages:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// Each call gets its own answer or the end of its wait, whatever concurrent calls do, and keeps
// it while buffers are reused.
func TestAnswersReachTheirCalls(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.streams = nil
	r.client.streams = newStreamManager(ctx, &mirror{t: t}, func() []string { return nil })
	gets := &kv{client: r.client, send: maxRequest, receive: 4 << 20}
	if _, err := gets.get(ctx, "first"); err != nil { // a call that is cancelled while the stream opens would be a gRPC call
		t.Fatal(err)
	}
	const clients, each = 32, 150
	var answered, ended [clients]int
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { answered[i], ended[i] = getsOfOne(ctx, t, gets, i, each) })
	}
	wg.Wait()
	all, gone := 0, 0
	for i := range clients {
		all, gone = all+answered[i], gone+ended[i]
	}
	t.Logf("%d gets were answered, the wait for %d has ended", all, gone)
	if all < 100 || gone < 100 {
		t.Errorf("%d gets were answered and the wait for %d has ended, which is too few to tell", all, gone)
	}
}

// getsOfOne makes the gets of one client, half of which give up soon.
func getsOfOne(ctx context.Context, t *testing.T, gets *kv, i, each int) (answered, ended int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	kept := make(map[string]*pb.RangeResponse)
	for n := range each {
		key := fmt.Sprintf("%d.%d.", i, n) + strings.Repeat("x", rng.IntN(300))
		ctx, cancel := context.WithCancel(ctx)
		if rng.IntN(2) == 0 {
			time.AfterFunc(time.Duration(rng.IntN(200))*time.Microsecond, cancel)
		}
		resp, err := gets.get(ctx, key)
		cancel()
		switch {
		case err == nil:
			answered++
			kept[key] = resp
		case status.Code(err) == codes.Canceled:
			ended++
		default:
			t.Errorf("a get of %s = %v", key, err)
			return answered, ended
		}
	}
	for key, resp := range kept {
		if kvs := resp.GetKvs(); len(kvs) != 1 || string(kvs[0].GetKey()) != key || string(kvs[0].GetValue()) != key {
			t.Errorf("a get of %s is answered with %v", key, kvs)
		}
	}
	return answered, ended
}
