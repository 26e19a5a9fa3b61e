package fastkv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// kv returns what Use gives to clients.
func (r *rig) kv() *kv {
	return &kv{
		KV: clientv3.NewKVFromKVClient(r.client, nil), client: r.client, calls: clientv3.NewKVFromKVClient(r.byCalls(), nil),
		send: maxRequest, receive: 1000,
	}
}

// outcome is what a get gave, in one line.
func outcome(resp *clientv3.GetResponse, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case resp.Count == -1:
		return "a call"
	case len(resp.Kvs) == 1:
		return string(resp.Kvs[0].GetValue())
	default:
		return "nothing"
	}
}

// The shorter way of a get leads to where the other one does.
func TestAGetByTheShorterWay(t *testing.T) {
	large := &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: make([]byte, 1000)}}}
	two := &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte("first")}, {}}, Count: 2, More: true}
	for _, c := range []struct {
		name   string
		answer func(s *served, id uint64)
		want   string
	}{
		{"found", func(s *served, id uint64) {
			s.answer(id, &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte("v")}}, Count: 1})
		}, "v"},
		{"not found", func(s *served, id uint64) { s.answer(id, &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}) }, "nothing"},
		{"more than a get gives", func(s *served, id uint64) { s.answer(id, two) }, "nothing"},
		{"Unavailable", func(s *served, id uint64) { s.fail(id, codes.Unavailable, "etcdserver: no leader") }, "a call"},
		{"etcd's error", func(s *served, id uint64) { s.fail(id, codes.ResourceExhausted, "etcdserver: too many requests") }, rpctypes.ErrTooManyRequests.Error()},
		{"too large", func(s *served, id uint64) { s.answer(id, large) }, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (1006 vs. 1000)"},
		{"the end of the stream", func(s *served, _ uint64) { s.ends <- status.Error(codes.Unavailable, "gone") }, "a call"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			k := r.kv()
			end := asked(func() error {
				if got := outcome(k.Get(t.Context(), "k")); got != c.want {
					t.Errorf("%s: a get gives %q, want %q", c.name, got, c.want)
				}
				return nil
			})
			s := r.accept(1)
			if request := s.next(); string(request.Method) != "Range" || limitOf(t, request) != 0 {
				t.Errorf("%s: the request is %+v", c.name, request)
			}
			c.answer(s, 1)
			if err := <-end; err != nil {
				t.Error(err)
			}
		})
	}
}

// What a get cannot say in the shorter way goes the other.
func TestAGetThatIsNotForTheShorterWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := r.kv()
		end := asked(func() error {
			_, err := k.Get(metadata.AppendToOutgoingContext(t.Context(), "a", "b"), "k")
			return err
		})
		s := r.accept(1)
		if request := s.next(); len(request.Metadata) != 2 {
			t.Errorf("metadata of a get are %q, want them with it", request.Metadata)
		}
		s.answer(1, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Error(err)
		}
		end = asked(func() error { _, err := k.Get(t.Context(), "k", clientv3.WithLimit(7)); return err })
		if request := s.next(); limitOf(t, request) != 7 {
			t.Errorf("the limit of a range is %d, want 7", limitOf(t, request))
		}
		s.answer(2, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Error(err)
		}
		for _, key := range []string{"", strings.Repeat("k", maxRequest)} {
			if got := outcome(k.Get(t.Context(), key)); got != "a call" {
				t.Errorf("a get of a key of %d bytes gives %q, want a call", len(key), got)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := k.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a get whose time is over = %v, want the context's error as from clientv3", err)
		}
		<-s.requests
	})
}

// The bounds of a client's calls hold for gets by the shorter way.
func TestBoundsOfAClient(t *testing.T) {
	for _, c := range []struct{ send, receive, wantSend, wantReceive int }{
		{0, 0, maxRequest, 1<<31 - 1},
		{1000, 2000, 1000, 2000},
	} {
		of, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"127.0.0.1:1"}, MaxCallSendMsgSize: c.send, MaxCallRecvMsgSize: c.receive, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if send, receive := bounds(of); send != c.wantSend || receive != c.wantReceive {
			t.Errorf("bounds %d, %d of a client are %d, %d for gets, want %d, %d", c.send, c.receive, send, receive, c.wantSend, c.wantReceive)
		}
		if err := of.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
