package fastkv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// mirror answers each get with its own key: some in pieces, several in a message, in any order, and also after the
// call was cancelled.
func mirror(t *testing.T) *loop {
	t.Helper()
	return &loop{serve: func(s *looped, message fastwire.Raw) error {
		var asked []fastwire.Request
		err := fastwire.Requests(message, func(data []byte) error {
			var r fastwire.Request
			err := r.Decode(data)
			if !r.Cancel {
				asked = append(asked, r)
			}
			return err
		})
		rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		later := rand.IntN(len(asked) + 1)
		s.send(mirrored(t, asked[later:]))
		time.AfterFunc(100*time.Microsecond, func() { s.send(mirrored(t, asked[:later])) })
		return err
	}}
}

// mirrored returns a message with the answers.
func mirrored(t *testing.T, asked []fastwire.Request) []byte {
	t.Helper()
	answers := fastwire.AppendMember(nil, 1, 1)
	for _, r := range asked {
		in := new(pb.RangeRequest)
		if err := proto.Unmarshal(r.Message, in); err != nil {
			t.Error(err)
		}
		out, err := proto.Marshal(&pb.RangeResponse{Header: &pb.ResponseHeader{MemberId: 1}, Count: 1, Kvs: []*mvccpb.KeyValue{{Key: in.GetKey(), Value: in.GetKey()}}})
		if err != nil {
			t.Error(err)
		}
		if cut := rand.IntN(2 * len(out)); cut < len(out) {
			answers = fastwire.AppendAnswer(answers, fastwire.Answer{ID: r.ID, Message: out[:cut], More: true})
			out = out[cut:]
		}
		answers = fastwire.AppendAnswer(answers, fastwire.Answer{ID: r.ID, Message: out})
	}
	return answers
}

// Each call gets its own answer or the end of its wait, whatever concurrent calls do, and keeps
// it while buffers are reused.
func TestAnswersReachTheirCalls(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.streams = nil
	r.client.streams = newStreamManager(ctx, mirror(t), func() []string { return nil })
	gets := &kv{client: r.client, send: maxRequest, receive: 4 << 20}
	if _, err := gets.get(ctx, "first"); err != nil { // a call that is cancelled while the stream opens would be a gRPC call
		t.Fatal(err)
	}
	const clients, each = 32, 150
	var all, gone atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			answered, ended := getsOfOne(ctx, t, gets, i, each)
			all.Add(int64(answered))
			gone.Add(int64(ended))
		})
	}
	wg.Wait()
	if a, g := all.Load(), gone.Load(); a < 100 || g < 100 {
		t.Errorf("%d gets were answered and the wait for %d has ended, which is too few to tell", a, g)
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
