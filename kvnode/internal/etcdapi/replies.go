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
	// smallReply is up to what size a reply is not counted: most are far smaller, and
	// share nothing with others; and it is what gRPC has buffers for, beyond which one
	// has 1 MiB. Larger: the streams of one connection, each with a reply that nobody
	// takes, hold more.
	smallReply = 32 << 10
	// replyGrace, and a second for each replyRate bytes, is how long a client may take
	// for a reply while others wait for its memory. Shorter: clients behind slow
	// lines are cut off. Longer: those who take nothing keep others waiting.
	replyGrace = 10 * time.Second
	replyRate  = 1 << 20
	// reclaimInterval is how often those who wait look for such clients, all of them
	// together about once in that time. Each for itself: with thousands of them the
	// raft loop has no processor left.
	reclaimInterval = time.Second
	// maxWaiting bounds the replies that wait for room, maxWaitingOfOne those for one
	// connection. More: what a stalled member collects for them, a tenth of each and
	// more. Fewer: bursts of large reads are refused, though they would have had room
	// soon. The second is less than the first, so that one client does not take all.
	maxWaiting      = 1000
	maxWaitingPerConn = 100
)

// replyBudget bounds the bytes of the replyBudget that are encoded and have not been written
// yet, on all connections. gRPC keeps such a reply until its client takes it. Who
// finds no room waits in the order of arrival, for a time, unless too many do; a reply that is larger than the bound
// passes when it is alone. Small replyBudget do not come here.
type replyBudget struct {
	limit    int64         // immutable, as the next two
	timeout time.Duration // how long a reply may wait
	log      *slog.Logger

	mu struct {
		sync.Mutex
		used int64
		held map[*reservation]struct{}
		queue *list.List // of *room
		// waiting is how many of the line are for one connection.
		waiting map[remote]int
		// nextReclaim is when those who wait look again.
		nextReclaim time.Time
	}
}

// reservation is what one reply takes of the bound.
type reservation struct {
	budget     *replyBudget
	queued  *list.Element // in the line, nil if not; under the lock of replies
	size   int64         // of the reply; immutable
	bytes  int64         // of the bound; immutable
	client remote        // nil if it cannot be ended; immutable
	deadline  time.Time     // set when it is let in
	granted  chan struct{} // closed then
}

// remote is the address of a connection that can be ended. gRPC has one for each
// connection, however many requests come by it.
type remote interface {
	String() string
	// End ends the connection, Ended reports whether it has ended.
	End()
	Ended() bool
}

func newReplyBudget(limit int64, patience time.Duration, log *slog.Logger) *replyBudget {
	b := &replyBudget{limit: limit, timeout: patience, log: log}
	b.mu.held, b.mu.queue, b.mu.waiting = make(map[*reservation]struct{}), list.New(), make(map[remote]int)
	return b
}

// reserve returns room for a reply of that size, which takes times as much memory.
// It waits until there is, until its patience ends, or until ctx does.
func (b *replyBudget) reserve(ctx context.Context, size, times int64) (*reservation, error) {
	r := &reservation{budget: b, size: size, bytes: min(size*times, b.limit), granted: make(chan struct{})}
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
			// For a request that has ended gRPC would not say when the bytes are free.
			if ctx.Err() == nil {
				return r, nil
			}
		case <-check.C:
		case <-waiting.Done():
		}
		if waiting.Err() != nil {
			r.release()
			return nil, status.Errorf(codes.ResourceExhausted, "kvnode: a reply of %d bytes has found no room beside others within %v, or until its request ended: "+
				"those that are being sent may take %d bytes; ask for less at a time, with RangeStream, or another member", size, b.timeout, b.limit)
		}
	}
}

// enqueue puts a reply at the end of the line, or lets it in.
func (b *replyBudget) enqueue(r *reservation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all, own := b.mu.queue.Len(), b.mu.waiting[r.client]; all >= maxWaiting || own >= maxWaitingPerConn {
		return status.Errorf(codes.ResourceExhausted, "kvnode: a reply of %d bytes cannot wait for room: %d others do, %d of them of this connection, "+
			"and %d and %d are the limits; ask for less at a time, with RangeStream, or another member", r.size, all, own, maxWaiting, maxWaitingPerConn)
	}
	r.queued = b.mu.queue.PushBack(r)
	if r.client != nil {
		b.mu.waiting[r.client]++
	}
	b.grantLocked()
	return nil
}

// grantLocked lets in those at the head of the line for whom there is room.
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

// dequeueLocked takes a reply out of the line if it stands there.
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

// release gives room back, or a place in the line. It may be called more than once.
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

// reclaim takes room back from connections that have ended, and ends those that
// have not taken their reply in time. It does nothing while nobody waits: a slow
// client harms nobody then. Nor does it right after another has done it.
func (b *replyBudget) reclaim(now time.Time) {
	var late []*reservation
	b.mu.Lock()
	if b.mu.queue.Len() == 0 || now.Before(b.mu.nextReclaim) {
		b.mu.Unlock()
		return
	}
	b.mu.nextReclaim = now.Add(reclaimInterval / 2) // half: tickers are early at times
	for r := range b.mu.held {
		if now.After(r.deadline) || r.client != nil && r.client.Ended() {
			late = append(late, r)
		}
	}
	b.mu.Unlock()
	for _, r := range late {
		if r.client != nil && !r.client.Ended() {
			b.log.Warn("a client takes its reply too slowly while others wait for the memory; its connection is ended",
				"remote", r.client.String(), "bytes", r.size, "limit", b.limit)
			r.client.End()
		}
		r.release()
	}
}

// reservedReply is a reply with the room that it takes once it is encoded.
type reservedReply struct {
	message proto.Message
	reservation    *reservation
}

// reserveReply finds room for a reply if it is not small. What it returns is what is to
// be sent.
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

// replySize returns the size of a reply. Of what is read most, and is small, it is
// an estimate that costs nothing.
func replySize(reply any) int {
	if r, ok := reply.(*pb.RangeResponse); ok && kvBytes(r.GetKvs()) <= smallReply {
		return 0
	}
	if m, ok := reply.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// kvBytes is about the size of a reply of kvs, and not less.
func kvBytes(kvs []*mvccpb.KeyValue) int {
	const (
		header  = 64 // with the count
		numbers = 64 // tags, lengths, revisions, version and TTL lease
	)
	n := header
	for _, kv := range kvs {
		n += len(kv.GetKey()) + len(kv.GetValue()) + numbers
	}
	return n
}

// codec is gRPC's own, except that large replies take as much memory as they have
// bytes, where gRPC takes 1 MiB for whatever has more than 32 KiB, and that the room
// of one is given back when gRPC needs its bytes no more.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{fastwire.NewCodec()} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *reservedReply:
		return m.marshal()
	case *outMessage:
		return m.marshal(), nil
	case *pb.WatchResponse, *pb.SnapshotResponse: // nobody has weighed them
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
	// Streams that end while their reply is on its way are forgotten without a word.
	b.cleanup = runtime.AddCleanup(b, (*reservation).release, w.reservation)
	return mem.BufferSlice{mem.NewBuffer(&data, b)}, nil
}

// replyBytes is where the bytes of one reply go back to.
type replyBytes struct {
	mem.NopBufferPool

	reservation      *reservation
	cleanup runtime.Cleanup
}

// Put implements mem.BufferPool.
func (b *replyBytes) Put(*[]byte) {
	b.cleanup.Stop()
	b.reservation.release()
}
