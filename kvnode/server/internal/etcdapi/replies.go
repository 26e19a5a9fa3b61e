package etcdapi

import (
	"container/list"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

const (
	// smallReply is the size up to which a reply does not count towards the budget. Most replies
	// are far smaller, and the read path under the lease must not share a lock. Up to this size
	// gRPC pools its buffers; larger ones take 1 MiB each. With a larger value, a client that
	// does not read holds more memory on the streams of its connection.
	smallReply = 32 << 10
	// replyGrace, plus a second per replyRate bytes, is how long a client may take to read a
	// reply while others wait for its memory. A shorter time disconnects clients on slow links. A
	// longer one lets a client that does not read delay others.
	replyGrace = 10 * time.Second
	replyRate  = 1 << 20
	// reclaimInterval is the time after which a waiting request searches for slow clients again.
	// Searches by different requests are at least half of it apart. Otherwise thousands of waiting
	// requests would take the CPU from the raft loop.
	reclaimInterval = time.Second
	// maxWaiting limits the replies that wait for the budget, maxWaitingPerConn those of one
	// connection. A waiting reply is not encoded yet, but its messages take a tenth of its size or
	// more. Lower limits reject bursts of large reads that would soon be served. The second limit is
	// lower, so one client cannot take all places.
	maxWaiting        = 1000
	maxWaitingPerConn = 100
)

// replyBudget limits the bytes of encoded replies that are not written yet, on all connections.
// gRPC keeps such a reply until its client reads it. Replies wait in the order of arrival, up to
// timeout. A reply larger than the limit is sent alone. Small replies, watch responses and snapshots bypass the budget.
type replyBudget struct {
	limit   int64         // immutable, as the next two fields
	timeout time.Duration // how long a reply may wait
	log     *slog.Logger

	mu struct {
		sync.Mutex
		used  int64
		held  map[*reservation]struct{}
		queue *list.List // of *reservation
		// waiting counts the queued replies of each connection.
		waiting map[remote]int
		// nextReclaim is the earliest time of the next search for slow clients.
		nextReclaim time.Time
	}
}

// reservation is one reply's part of the budget.
type reservation struct {
	budget   *replyBudget
	queued   *list.Element // nil if not in the queue; under the lock of replyBudget
	size     int64         // of the reply; immutable
	bytes    int64         // reserved; immutable
	client   remote        // nil if the connection cannot be closed; immutable
	deadline time.Time     // of the client's read; set when granted
	granted  chan struct{} // closed when granted
}

// remote is the address of a connection that can be closed. All requests of a connection share it.
type remote interface {
	String() string
	// End closes the connection, Ended reports whether it is closed.
	End()
	Ended() bool
}

func newReplyBudget(limit int64, timeout time.Duration, log *slog.Logger) *replyBudget {
	b := &replyBudget{limit: limit, timeout: timeout, log: log}
	b.mu.held, b.mu.queue, b.mu.waiting = make(map[*reservation]struct{}), list.New(), make(map[remote]int)
	return b
}

// reserve reserves memory for a reply of size bytes that takes factor times as much. It waits
// until the memory is free, the timeout ends or ctx ends.
func (b *replyBudget) reserve(ctx context.Context, size, factor int64) (*reservation, error) {
	r := &reservation{budget: b, size: size, bytes: min(size*factor, b.limit), granted: make(chan struct{})}
	if p, ok := peer.FromContext(ctx); ok {
		r.client, _ = p.Addr.(remote)
	}
	if err := b.enqueue(r); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	check := time.NewTicker(reclaimInterval)
	defer check.Stop()
	for {
		b.reclaim(time.Now())
		select {
		case <-r.granted:
			// For a request that has ended, gRPC does not report when it frees the bytes: release them below.
			if ctx.Err() == nil {
				return r, nil
			}
		case <-check.C:
		case <-waiting.Done():
		}
		if waiting.Err() != nil {
			r.release()
			return nil, status.Errorf(codes.ResourceExhausted, "kvnode: no memory for a reply of %d bytes within %v, or before its request ended: "+
				"all replies in progress may take %d bytes; read less at a time, use RangeStream, or ask another member", size, b.timeout, b.limit)
		}
	}
}

// enqueue appends a reply to the queue, and grants it if there is memory.
func (b *replyBudget) enqueue(r *reservation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all, own := b.mu.queue.Len(), b.mu.waiting[r.client]; all >= maxWaiting || own >= maxWaitingPerConn {
		return status.Errorf(codes.ResourceExhausted, "kvnode: a reply of %d bytes cannot wait for memory: %d replies wait, %d of them for this connection, "+
			"and the limits are %d and %d; read less at a time, use RangeStream, or ask another member", r.size, all, own, maxWaiting, maxWaitingPerConn)
	}
	r.queued = b.mu.queue.PushBack(r)
	if r.client != nil {
		b.mu.waiting[r.client]++
	}
	b.grantLocked()
	return nil
}

// grantLocked grants the replies at the head of the queue that fit into the limit.
func (b *replyBudget) grantLocked() {
	for b.mu.queue.Len() > 0 {
		r, _ := b.mu.queue.Front().Value.(*reservation)
		if b.mu.used+r.bytes > b.limit {
			return
		}
		b.dequeueLocked(r)
		b.mu.used += r.bytes
		b.mu.held[r] = struct{}{}
		r.deadline = time.Now().Add(replyGrace + time.Duration(r.size)*time.Second/replyRate)
		close(r.granted)
	}
}

// dequeueLocked removes a reply from the queue, if it is in the queue.
func (b *replyBudget) dequeueLocked(r *reservation) {
	if r.queued == nil {
		return
	}
	b.mu.queue.Remove(r.queued)
	r.queued = nil
	if b.mu.waiting[r.client]--; b.mu.waiting[r.client] <= 0 {
		delete(b.mu.waiting, r.client)
	}
}

// release frees the memory, or leaves the queue. It may be called more than once.
func (r *reservation) release() {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.mu.held[r]; ok {
		delete(b.mu.held, r)
		b.mu.used -= r.bytes
	}
	b.dequeueLocked(r)
	b.grantLocked()
}

// reclaim frees the memory of closed connections, and closes connections with a reply that the
// client has not read in time. While no reply waits, a slow client delays no other, so reclaim does
// nothing. It searches at most once in half a reclaimInterval.
func (b *replyBudget) reclaim(now time.Time) {
	var late []*reservation
	b.mu.Lock()
	if b.mu.queue.Len() == 0 || now.Before(b.mu.nextReclaim) {
		b.mu.Unlock()
		return
	}
	b.mu.nextReclaim = now.Add(reclaimInterval / 2) // half: tickers may be early
	for r := range b.mu.held {
		if now.After(r.deadline) || r.client != nil && r.client.Ended() {
			late = append(late, r)
		}
	}
	b.mu.Unlock()
	for _, r := range late {
		if r.client != nil && !r.client.Ended() {
			b.log.Warn("connection closed: its client reads a reply too slowly while others wait for the memory",
				"remote", r.client.String(), "bytes", r.size, "limit", b.limit)
			r.client.End()
		}
		r.release()
	}
}

// reservedReply is a reply with its part of the budget.
type reservedReply struct {
	message     proto.Message
	reservation *reservation
}

// reserveReply reserves memory for a reply, unless it is small. It returns the value to send.
func (a *API) reserveReply(ctx context.Context, reply any) (any, error) {
	size := replySize(reply)
	if size <= smallReply {
		return reply, nil
	}
	if d := a.gatewayRequests.find(ctx); d != nil {
		return reply, d.reserve(ctx, a.replies, int64(size))
	}
	r, err := a.replies.reserve(ctx, int64(size), 1)
	if err != nil {
		return nil, err
	}
	message, _ := reply.(proto.Message)
	return &reservedReply{message, r}, nil
}

// replySize returns the size of a reply. For a small RangeResponse it returns 0 after an estimate
// that costs nothing.
func replySize(reply any) int {
	if r, ok := reply.(*pb.RangeResponse); ok && kvBytes(r.GetKvs()) <= smallReply {
		return 0
	}
	if m, ok := reply.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// kvBytes estimates the size of a reply with kvs. It is never less than the size.
func kvBytes(kvs []*mvccpb.KeyValue) int {
	const (
		header  = 64 // including the count
		numbers = 64 // tags, lengths, revisions, version and TTL lease
	)
	n := header
	for _, kv := range kvs {
		n += len(kv.GetKey()) + len(kv.GetValue()) + numbers
	}
	return n
}

// codec is gRPC's codec with two differences. A large reply takes as much memory as it has bytes,
// while gRPC takes 1 MiB for anything above 32 KiB. And a reservation is released when gRPC no
// longer needs the bytes.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{fastwire.NewCodec()} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *reservedReply:
		return m.marshal()
	case *outMessage:
		return m.marshal(), nil
	case *pb.WatchResponse, *pb.SnapshotResponse: // they have no reservation
		message, _ := v.(proto.Message)
		if proto.Size(message) <= smallReply {
			break
		}
		data, err := proto.MarshalOptions{UseCachedSize: true}.Marshal(message)
		return mem.BufferSlice{mem.SliceBuffer(data)}, err
	}
	return c.CodecV2.Marshal(v)
}

func (w *reservedReply) marshal() (mem.BufferSlice, error) {
	data, err := proto.Marshal(w.message)
	if err != nil {
		w.reservation.release()
		return nil, err
	}
	b := &replyBytes{reservation: w.reservation}
	// After a stream has ended, gRPC drops its replies and does not call Put.
	b.cleanup = runtime.AddCleanup(b, (*reservation).release, w.reservation)
	return mem.BufferSlice{mem.NewBuffer(&data, b)}, nil
}

// replyBytes is the buffer pool of one reply. It releases the reservation.
type replyBytes struct {
	mem.NopBufferPool

	reservation *reservation
	cleanup     runtime.Cleanup
}

// Put implements mem.BufferPool.
func (b *replyBytes) Put(*[]byte) {
	b.cleanup.Stop()
	b.reservation.release()
}
