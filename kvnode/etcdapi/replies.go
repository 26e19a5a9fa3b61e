package etcdapi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// smallReply is up to what size a reply is not counted: most are far smaller, and
	// share nothing with others. Larger: the streams of one connection, each with a
	// reply that nobody takes, hold more.
	smallReply = 64 << 10
	// replyGrace, and a second for each replyRate bytes, is how long a client may take
	// for a reply while others wait for its memory. Shorter: clients behind slow
	// lines are cut off. Longer: those who take nothing keep others waiting.
	replyGrace = 10 * time.Second
	replyRate  = 1 << 20
	// replyCheck is how often those who wait look for such clients.
	replyCheck = time.Second
)

// replies bounds the bytes of the replies that are encoded and have not been written
// yet, on all connections. gRPC keeps such a reply until its client takes it. Who
// finds no room waits in the order of arrival; a reply that is larger than the bound
// passes when it is alone. Small replies do not come here.
type replies struct {
	limit int64        // immutable
	log   *slog.Logger // immutable

	mu struct {
		sync.Mutex
		used int64
		held map[*room]struct{}
		line []*room
	}
}

// room is what one reply takes of the bound.
type room struct {
	of     *replies
	size   int64         // of the reply; immutable
	bytes  int64         // of the bound; immutable
	client remote        // nil if it cannot be ended; immutable
	until  time.Time     // set when it is let in
	letIn  chan struct{} // closed then
}

// remote is the address of a connection that can be ended.
type remote interface {
	String() string
	// End ends the connection, Ended reports whether it has ended.
	End()
	Ended() bool
}

func newReplies(limit int64, log *slog.Logger) *replies {
	b := &replies{limit: limit, log: log}
	b.mu.held = make(map[*room]struct{})
	return b
}

// reserve returns room for a reply of that size, which takes times as much memory.
// It waits until there is, or until ctx ends.
func (b *replies) reserve(ctx context.Context, size, times int64) (*room, error) {
	r := &room{of: b, size: size, bytes: min(size*times, b.limit), letIn: make(chan struct{})}
	if p, ok := peer.FromContext(ctx); ok {
		r.client, _ = p.Addr.(remote)
	}
	b.mu.Lock()
	b.mu.line = append(b.mu.line, r)
	b.admitLocked()
	b.mu.Unlock()
	check := time.NewTicker(replyCheck)
	defer check.Stop()
	for {
		select {
		case <-r.letIn:
			// For a request that has ended gRPC would not say when the bytes are free.
			if ctx.Err() == nil {
				return r, nil
			}
		case <-check.C:
			b.reclaim(time.Now())
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			r.release()
			return nil, status.Errorf(codes.ResourceExhausted, "kvnode: a reply of %d bytes has found no room beside others until its request ended: "+
				"those that are being sent may take %d bytes; ask for less at a time, or with RangeStream", size, b.limit)
		}
	}
}

// admitLocked lets in those at the head of the line for whom there is room.
func (b *replies) admitLocked() {
	for len(b.mu.line) > 0 && b.mu.used+b.mu.line[0].bytes <= b.limit {
		r := b.mu.line[0]
		b.mu.line = b.mu.line[1:]
		b.mu.used += r.bytes
		b.mu.held[r] = struct{}{}
		r.until = time.Now().Add(replyGrace + time.Duration(r.size)*time.Second/replyRate)
		close(r.letIn)
	}
}

// release gives room back, or a place in the line. It may be called more than once.
func (r *room) release() {
	b := r.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.mu.held[r]; ok {
		delete(b.mu.held, r)
		b.mu.used -= r.bytes
	}
	for i, other := range b.mu.line {
		if other == r {
			b.mu.line = append(b.mu.line[:i:i], b.mu.line[i+1:]...)
			break
		}
	}
	b.admitLocked()
}

// reclaim takes room back from connections that have ended, and ends those that
// have not taken their reply in time. Only who waits calls it: a slow client harms
// nobody otherwise.
func (b *replies) reclaim(now time.Time) {
	var late []*room
	b.mu.Lock()
	for r := range b.mu.held {
		if now.After(r.until) || r.client != nil && r.client.Ended() {
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
