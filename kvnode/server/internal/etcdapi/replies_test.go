package etcdapi

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// usedBytes returns the reserved bytes.
func (b *replyBudget) usedBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.used
}

func (b *replyBudget) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.queue.Len()
}

// until waits for real goroutines, so the time is generous.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a minute has passed, want that %s", what)
		}
	}
}

// Replies are granted in the order of arrival, as many at once as fit. One above the limit is
// granted alone.
func TestRepliesWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReplyBudget(100, time.Hour, slog.New(slog.DiscardHandler))
		var mu sync.Mutex
		var order []int64
		rooms := make(map[int64]*reservation)
		ask := func(size int64) {
			go func() {
				r, err := b.reserve(t.Context(), size, 1)
				if err != nil {
					t.Errorf("reserve(%d) = %v", size, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				order, rooms[size] = append(order, size), r
			}()
			synctest.Wait()
		}
		want := func(what string, sizes ...int64) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(order) != fmt.Sprint(sizes) {
				t.Errorf("%s: granted to %v, want %v", what, order, sizes)
			}
		}
		ask(60)
		ask(40)
		ask(41)
		ask(500)
		ask(1)
		want("at first", 60, 40)
		rooms[60].release()
		want("when the first is gone", 60, 40, 41)
		rooms[60].release()
		want("when it goes again", 60, 40, 41)
		rooms[40].release()
		want("as long as one is there", 60, 40, 41)
		rooms[41].release()
		want("when all are gone", 60, 40, 41, 500)
		rooms[500].release()
		want("after the largest", 60, 40, 41, 500, 1)
		rooms[1].release()
		if n := b.usedBytes(); n != 0 {
			t.Errorf("%d bytes are used when all are gone, want 0", n)
		}
	})
}

// A reply that gives up leaves the queue, and its error has the limit.
func TestReplyThatGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReplyBudget(100, time.Hour, slog.New(slog.DiscardHandler))
		first, err := b.reserve(t.Context(), 100, 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = b.reserve(ctx, 77, 1)
		if s := status.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "77 bytes") || !strings.Contains(s.Message(), "100 bytes") {
			t.Errorf("reserve() without room = %v, want ResourceExhausted with 77 and 100", err)
		}
		if n := b.waiting(); n != 0 {
			t.Errorf("%d wait after the only one has left, want 0", n)
		}
		first.release()
		if r, err := b.reserve(t.Context(), 100, 1); err != nil {
			t.Errorf("reserve() afterwards = %v", err)
		} else {
			r.release()
		}
	})
}

// fakeRemote is the address of a connection.
type fakeRemote struct {
	net.Addr

	ended atomic.Bool
	asked atomic.Int64 // number of calls of Ended
}

func (*fakeRemote) String() string { return "10.0.0.1:1" }
func (f *fakeRemote) End()         { f.ended.Store(true) }

func (f *fakeRemote) Ended() bool {
	f.asked.Add(1)
	return f.ended.Load()
}

// from returns the context of a request on the connection.
func from(t *testing.T, f *fakeRemote) context.Context {
	t.Helper()
	return peer.NewContext(t.Context(), &peer.Peer{Addr: f})
}

// A client that does not read its reply delays others for a limited time. While no reply waits,
// its connection stays open.
func TestSlowClientIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		b := newReplyBudget(100<<20, time.Hour, slog.New(slog.NewTextHandler(&said, nil)))
		holding := func(ctx context.Context) *reservation {
			t.Helper()
			r, err := b.reserve(ctx, 50<<20, 1) // 10 s and 50 s
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		slow := new(fakeRemote)
		holding(from(t, slow))
		time.Sleep(time.Hour)
		if slow.Ended() {
			t.Fatal("a slow client's connection is closed though no reply waits")
		}
		quick := new(fakeRemote)
		holding(from(t, quick))
		began := time.Now()
		third := holding(t.Context())
		if took := time.Since(began); !slow.Ended() || quick.Ended() || took > 2*reclaimInterval {
			t.Errorf("a reply has room after %v, slow is cut: %v, quick: %v; want it at once, and only slow cut", took, slow.Ended(), quick.Ended())
		}
		if !strings.Contains(said.String(), "10.0.0.1:1") {
			t.Errorf("the log says %q, want the address of the closed connection", said.String())
		}
		began = time.Now()
		holding(t.Context())
		if took := time.Since(began); !quick.Ended() || took < 57*time.Second || took > 62*time.Second {
			t.Errorf("the next has room after %v, quick is cut: %v; want both after 60s", took, quick.Ended())
		}
		third.release()
		gone := new(fakeRemote)
		holding(from(t, gone))
		gone.End()
		began = time.Now()
		if holding(t.Context()); time.Since(began) > 2*reclaimInterval {
			t.Errorf("what a client that has gone had is free after %v; want it at once", time.Since(began))
		}
	})
}

// crowd makes n replies wait for a connection. It returns how many were rejected at once, and an
// error.
func crowd(ctx context.Context, b *replyBudget, n int) (refused int, said string) {
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := b.reserve(ctx, 50, 1)
			errs <- err
		}()
	}
	synctest.Wait()
	for refused = len(errs); len(errs) > 0; {
		said = fmt.Sprint(<-errs)
	}
	return refused, said
}

// The queue is limited for each connection and for all. Replies that leave it free their place.
func TestReplyQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReplyBudget(100, time.Hour, slog.New(slog.DiscardHandler))
		if _, err := b.reserve(t.Context(), 100, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(from(t, new(fakeRemote)))
		defer cancel()
		refused, said := crowd(ctx, b, maxWaitingPerConn+3)
		if refused != 3 || !strings.Contains(said, "ResourceExhausted") || !strings.Contains(said, fmt.Sprint(maxWaitingPerConn)) {
			t.Errorf("%d replies of one connection are refused, %q; want 3, and the limit %d", refused, said, maxWaitingPerConn)
		}
		for range maxWaiting/maxWaitingPerConn - 1 {
			if refused, said := crowd(from(t, new(fakeRemote)), b, maxWaitingPerConn); refused != 0 {
				t.Errorf("%d replies of another connection are refused: %s", refused, said)
			}
		}
		refused, said = crowd(from(t, new(fakeRemote)), b, 3)
		if refused != 3 || !strings.Contains(said, fmt.Sprint(maxWaiting)) {
			t.Errorf("with %d in the line %d of 3 are refused, %q; want all, and the limit", b.waiting(), refused, said)
		}
		cancel()
		synctest.Wait()
		if n := b.waiting(); n != maxWaiting-maxWaitingPerConn {
			t.Errorf("%d wait when one connection has left, want %d", n, maxWaiting-maxWaitingPerConn)
		}
		if refused, said := crowd(from(t, new(fakeRemote)), b, 3); refused != 0 {
			t.Errorf("%d replies are refused after some have left: %s", refused, said)
		}
	})
}

// A reply waits as long as a request may, even if its client would wait longer.
func TestReplyQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReplyBudget(100, 7*time.Second, slog.New(slog.DiscardHandler))
		if _, err := b.reserve(t.Context(), 100, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := b.reserve(ctx, 77, 1)
		if took := time.Since(began); took != 7*time.Second || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a reply without room waits %v and gets %v, want 7s and ResourceExhausted", took, err)
		}
		if n := b.waiting(); n != 0 {
			t.Errorf("%d wait afterwards, want 0", n)
		}
	})
}

// However many replies wait, slow clients are searched for about once per interval, also if no
// reply waits for a whole interval.
func TestWaitingRepliesShareReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReplyBudget(100, time.Hour, slog.New(slog.DiscardHandler))
		slow := new(fakeRemote)
		if _, err := b.reserve(from(t, slow), 100, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 500 {
			go func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_, _ = b.reserve(ctx, 60, 1) // it is the test's end that ends it
			}()
		}
		time.Sleep(8 * time.Second)
		if n := slow.asked.Load(); n < 7 || n > 17 {
			t.Errorf("500 that wait 8s look %d times, want about once, and twice at most, each second", n)
		}
		cancel()
		synctest.Wait()
		for range 8 {
			hasty, cancel := context.WithTimeout(t.Context(), reclaimInterval/2)
			_, _ = b.reserve(hasty, 60, 1) // in vain, except for the last ones
			cancel()
		}
		if !slow.Ended() {
			t.Error("replies that wait half a second each have not closed the connection of a client that has not read for 12s")
		}
	})
}

// Small replies, which most lease reads are, take no lock.
func TestSmallRepliesAreNotCounted(t *testing.T) {
	a := New(newFakeNode(t), Config{})
	a.replies.mu.Lock() // a reply that needs it blocks
	defer a.replies.mu.Unlock()
	kv := &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, smallReply-1000)}
	for name, reply := range map[string]any{
		"get": &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}, Count: 1}, "nothing": &pb.RangeResponse{}, "put": &pb.PutResponse{},
		"txn": &pb.TxnResponse{Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}}}}}},
	} {
		ctx := t.Context()
		if n := testing.AllocsPerRun(100, func() {
			if got, err := a.reserveReply(ctx, reply); got != reply || err != nil {
				t.Errorf("weigh(%s) = %v, %v, want it as it is", name, got, err)
			}
		}); n != 0 {
			t.Errorf("weigh(%s) allocates %v times, want never", name, n)
		}
	}
}

// The memory of a reply is the counted size. gRPC's buffers above 32 KiB would take 1 MiB.
func TestReplyMemoryIsCounted(t *testing.T) {
	kv := func(n int) *mvccpb.KeyValue { return &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, n)} }
	b := newReplyBudget(1<<30, time.Second, slog.New(slog.DiscardHandler))
	for name, message := range map[string]proto.Message{
		"the largest that is not counted":  &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv(smallReply - 100)}},
		"the smallest that is counted":     &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv(smallReply)}},
		"one that is larger than a buffer": &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv(3 << 20)}},
		"a watch's":                        &pb.WatchResponse{Events: []*mvccpb.Event{{Kv: kv(smallReply)}}},
		"a snapshot's":                     &pb.SnapshotResponse{Blob: make([]byte, 2*smallReply)},
	} {
		t.Run(name, func(t *testing.T) {
			size := proto.Size(message)
			var reply any = message
			if _, ok := message.(*pb.RangeResponse); ok && size > smallReply {
				r, err := b.reserve(t.Context(), int64(size), 1)
				if err != nil {
					t.Fatal(err)
				}
				reply = &reservedReply{message, r}
			}
			data, err := newCodec().Marshal(reply)
			if err != nil {
				t.Fatal(err)
			}
			if got, most := buffered(data), size+size/4; got > most { // the allocator's classes
				t.Errorf("%d bytes take %d of memory, want %d at most", size, got, most)
			}
			data.Free()
		})
	}
	if used := b.usedBytes(); used != 0 {
		t.Errorf("%d bytes are counted when all is sent, want none", used)
	}
}

// The estimate is at least the size, or a reply could need a larger buffer than assumed.
func TestReplySizeIsNotUnderestimated(t *testing.T) {
	const most, largest = math.MaxUint64, math.MaxInt64
	reply := &pb.RangeResponse{
		Header: &pb.ResponseHeader{ClusterId: most, MemberId: most, Revision: largest, RaftTerm: most}, More: true, Count: largest,
		Kvs: []*mvccpb.KeyValue{{
			Key: []byte("k"), Value: make([]byte, smallReply-200), CreateRevision: largest, ModRevision: largest, Version: largest, Lease: largest,
		}},
	}
	if size, estimate := proto.Size(reply), kvBytes(reply.GetKvs()); estimate < size {
		t.Errorf("kvBytes() = %d of a reply of %d bytes, want no less", estimate, size)
	}
}

func buffered(data mem.BufferSlice) (n int) {
	for _, b := range data {
		n += cap(b.ReadOnlyData())
	}
	return n
}
