package etcdapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// largeServer has eight values under k, each a quarter of the limit.
func largeServer(t *testing.T) *server {
	t.Helper()
	s := startServer(t, Config{MaxReplyBytes: 1 << 20})
	for i := range 8 {
		s.put(t, fmt.Sprintf("k%d", i), strings.Repeat("v", 256<<10))
	}
	return s
}

func rangeOf(key string, n int) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte("l"), Limit: int64(n)}
}

// holding requests a reply and does not read it, until cancel is called.
func holding(t *testing.T, conn *grpc.ClientConn, method string, r *pb.RangeRequest) (cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = stream.SendMsg(r)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cancel
}

// The encoded replies for clients that do not read stay within the limit. Cancelled replies are
// freed. Small reads are not affected.
func TestRepliesStayWithinTheirBound(t *testing.T) {
	for _, method := range []string{pb.KV_Range_FullMethodName, pb.KV_RangeStream_FullMethodName} {
		t.Run(method, func(t *testing.T) {
			s := largeServer(t)
			b := s.api.replies
			var cancels []func()
			for range 12 {
				cancels = append(cancels, holding(t, s.conn, method, rangeOf("k", 2)))
			}
			until(t, "replies above the limit wait", func() bool { return b.waiting() > 0 && b.usedBytes() > b.limit/4 })
			if used := b.usedBytes(); used > b.limit {
				t.Errorf("%d bytes are encoded, want %d at most", used, b.limit)
			}
			if _, err := s.kv.Range(t.Context(), &pb.RangeRequest{Key: []byte("k0"), CountOnly: true}); err != nil {
				t.Errorf("a small read beside them = %v", err)
			}
			for _, cancel := range cancels {
				cancel()
			}
			until(t, "all is given back", func() bool {
				runtime.GC() // gRPC drops the replies of ended streams without Put
				return b.usedBytes() == 0 && b.waiting() == 0
			})
			// A reply of twice the limit is sent alone.
			resp, err := s.kv.Range(t.Context(), rangeOf("k", 0), grpc.MaxCallRecvMsgSize(8<<20))
			if err != nil || len(resp.GetKvs()) != 8 {
				t.Errorf("Range() of more than the bound = %d keys, %v, want 8", len(resp.GetKvs()), err)
			}
			until(t, "its reservation is released", func() bool { return b.usedBytes() == 0 })
		})
	}
}

// A closed connection frees its replies.
func TestRepliesOfAConnectionThatEnds(t *testing.T) {
	s := largeServer(t)
	conn, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(s.dial))
	if err != nil {
		t.Fatal(err)
	}
	holding(t, conn, pb.KV_Range_FullMethodName, rangeOf("k", 2))
	until(t, "the reply is encoded", func() bool { return s.api.replies.usedBytes() > 0 })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "its room is given back", func() bool {
		runtime.GC() // gRPC forgets what a connection that ends has not sent
		return s.api.replies.usedBytes() == 0
	})
}

// stuck is an HTTP client that does not read its reply.
type stuck struct {
	*httptest.ResponseRecorder

	begun chan struct{}
	once  sync.Once
	end   chan struct{}
	until atomic.Pointer[time.Time]
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	<-s.end
	return s.ResponseRecorder.Write(p)
}

func (s *stuck) SetWriteDeadline(t time.Time) error {
	s.until.Store(&t)
	return nil
}

// A reply through the gateway is counted in all its forms until it is written, and has a write
// deadline.
func TestRepliesOverTheGateway(t *testing.T) {
	s := largeServer(t)
	h, err := s.api.Gateway(t.Context(), s.conn)
	if err != nil {
		t.Fatal(err)
	}
	b := s.api.replies
	w := &stuck{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), end: make(chan struct{})}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v3/kv/range", strings.NewReader(`{"key":"azA="}`))
	// A client cannot name another's request.
	request.Header.Set("Grpc-Metadata-"+metadataGatewayRequest, "1")
	done := make(chan struct{})
	go func() { h.ServeHTTP(w, request); close(done) }()
	<-w.begun
	if used := b.usedBytes(); used != b.limit { // 8 times 256 KiB, and no more than there is
		t.Errorf("%d bytes are used while the reply is written, want %d", used, b.limit)
	}
	if at := w.until.Load(); at == nil || at.IsZero() {
		t.Error("the reply has no time limit, want one")
	}
	close(w.end)
	<-done
	if used := b.usedBytes(); used != 0 || w.Code != http.StatusOK {
		t.Errorf("%d bytes are used after the reply %d, want 0 after 200", used, w.Code)
	}
	if at := w.until.Load(); at == nil || !at.IsZero() {
		t.Errorf("the next request has the time limit %v, want none", at)
	}
	s.api.gatewayRequests.byID.Range(func(id, _ any) bool {
		t.Errorf("request %v is kept, want it forgotten", id)
		return true
	})
}

// Replies with a reservation have gRPC's encoding.
func TestReservedRepliesHaveGRPCEncoding(t *testing.T) {
	c, b := newCodec(), newReplyBudget(1<<30, time.Hour, slog.New(slog.DiscardHandler))
	m := &pb.RangeResponse{Count: 7, Kvs: []*mvccpb.KeyValue{{Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 3<<20)}}}
	r, err := b.reserve(t.Context(), int64(proto.Size(m)), 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Marshal(&reservedReply{m, r})
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := io.ReadAll(got.Reader())
	other, _ := io.ReadAll(want.Reader())
	if !bytes.Equal(one, other) {
		t.Errorf("a weighed reply is encoded as %d bytes, want the %d that it is", len(one), len(other))
	}
	if b.usedBytes() == 0 {
		t.Error("the room of a reply is free before its bytes are")
	}
	got.Free()
	if used := b.usedBytes(); used != 0 {
		t.Errorf("%d bytes are used after the bytes are free, want 0", used)
	}
}
