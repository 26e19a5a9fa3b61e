package etcdapi

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/fastkv"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// A connection has as many streams as all leave free. The stream that is refused is told the limit.
func TestStreamsAreShared(t *testing.T) {
	var l fastLimits
	l.init()
	fill := func(addr net.Addr) (all []*fastConn) {
		for {
			c, err := l.open(addr)
			if err != nil {
				if want := fmt.Sprintf("of %d at most", maxFastStreams); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), want) {
					t.Errorf("a stream too many = %v, want ResourceExhausted, %q", err, want)
				}
				return all
			}
			all = append(all, c)
		}
	}
	first := fill(&net.TCPAddr{Port: 1})
	second := fill(&net.TCPAddr{Port: 2})
	if len(first) != maxFastStreams/2 || len(second) != maxFastStreams/4 {
		t.Errorf("connections have %d and %d streams, want %d and %d", len(first), len(second), maxFastStreams/2, maxFastStreams/4)
	}
	for _, c := range append(first, second...) {
		l.close(c)
	}
	if l.mu.streams != 0 || len(l.mu.conns) != 0 {
		t.Errorf("%d streams and %d connections are left", l.mu.streams, len(l.mu.conns))
	}
}

// A request that is larger than what a stream may always cost is refused if others use all that there
// is: nothing of its own stream could make room for it.
func TestALargeRequestInACrowd(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.api.fast.bytes.Add(maxFastBytes)
		r.in <- r.items(1, 1, "Put", &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 60<<10)})
		r.want(1, codes.ResourceExhausted, "make a call instead")
		r.in <- r.items(2, 1, "Put", putK)
		r.want(2, codes.OK, "")
		r.api.fast.bytes.Add(-maxFastBytes)
		synctest.Wait()
		if n := r.api.fast.bytes.Load(); n != 0 {
			t.Errorf("the stream costs %d bytes when all is answered", n)
		}
	})
}

// unwritten is a stream of which gRPC writes no message.
type unwritten struct {
	*fastRig

	messages atomic.Int64
}

// SendMsg implements grpc.ServerStream.
func (u *unwritten) SendMsg(any) error {
	u.messages.Add(1)
	return nil
}

// The answers that a client does not take share a message, however slowly they come, and the stream
// is charged the memory of its messages.
func TestAnswersThatAreNotWrittenShareAMessage(t *testing.T) {
	onStream(t, func(r *fastRig) {
		u := &unwritten{fastRig: &fastRig{t: t, fakeNode: r.fakeNode, ctx: r.ctx, in: make(chan fastwire.Raw)}}
		over := make(chan struct{})
		go func() { defer close(over); _ = serveFast(&kvServer{API: r.api}, u) }()
		for _, leased := range []bool{false, true} {
			r.leased.Store(leased)
			for i := range 100 {
				u.in <- r.items(i, 1, "Range", getK)
				synctest.Wait()
			}
		}
		if n := u.messages.Load(); n != maxUnwritten {
			t.Errorf("gRPC has %d messages that it has not written, want %d", n, maxUnwritten)
		}
		// The first of them has no answer. The next one is not with gRPC.
		if n := r.api.fast.bytes.Load(); n < maxUnwritten*minMessage || n > maxUnwritten*smallMessage {
			t.Errorf("a stream with 200 short answers costs %d bytes, want from %d to %d", n, maxUnwritten*minMessage, maxUnwritten*smallMessage)
		}
		r.cancel(context.Canceled)
		<-over
	})
}

// gRPC says when it has written a message: a stream that waits for requests costs nothing.
func TestWhatIsWrittenCostsNothing(t *testing.T) {
	s := startServer(t, Config{})
	kv := fastkv.New(s.client(t))
	for range 100 {
		if _, err := kv.Put(t.Context(), &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 60<<10)}); err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Range(t.Context(), getK); err != nil { // a large answer
			t.Fatal(err)
		}
	}
	s.api.fast.mu.Lock()
	streams := s.api.fast.mu.streams
	s.api.fast.mu.Unlock()
	if streams == 0 {
		t.Skip("the machine stood still: there is no stream")
	}
	for s.api.fast.bytes.Load() != 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
