package fastkv

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// stream carries requests to one member. Two goroutines, one sends and one receives.
type stream struct {
	ctx       context.Context // ends with the stream
	cancel    context.CancelFunc
	rpc       grpc.ClientStream
	wake      chan struct{} // who sends; buffered by one
	endpoints []string      // of the client when it was opened
	member    atomic.Int32  // leads, follows or alone
	ending    atomic.Bool   // the member stops, and takes no further request
	opened    time.Time
	owed      atomic.Int64 // since when nothing was heard though an answer is due, in nanoseconds after opened; 0 if none is

	// dones are channels of calls that nothing is in, and that nobody tells anything any more.
	dones   sync.Pool
	answers []fastwire.Answer // of who receives, for use again
	over    []*call           // likewise

	mu struct {
		sync.Mutex
		last    uint64           // ID
		under   map[uint64]*call // those without an answer
		waiting []*call          // to be sent; some may be under way no more
		over    bool             // nothing is taken any more
	}
}

// What a member is, the best first.
const (
	leads   = iota
	follows // and knows who leads
	alone   // it knows nobody who does
)

// call is one request. Who takes it out of the stream's map ends it.
type call struct {
	fastwire.Request

	deadline time.Time // zero if there is none
	receive  int       // how large its answer may be
	sent     bool      // or about to be; under the lock of stream
	answer   []byte
	err      error
	done     chan struct{} // told once, when answer or err is there
}

func newStream(ctx context.Context, cancel context.CancelFunc, rpc grpc.ClientStream) *stream {
	s := &stream{ctx: ctx, cancel: cancel, rpc: rpc, wake: make(chan struct{}, 1), opened: time.Now()}
	s.dones.New = func() any { return make(chan struct{}, 1) }
	s.mu.under = make(map[uint64]*call)
	return s
}

// usable reports whether requests may go by the stream.
func (s *stream) usable(now time.Time) bool {
	if s == nil || s.ending.Load() || s.ctx.Err() != nil {
		return false
	}
	owed := time.Duration(s.owed.Load())
	return owed == 0 || now.Sub(s.opened)-owed < pause
}

// call makes a request and returns its response, which may have so many bytes.
func (s *stream) call(ctx context.Context, r fastwire.Request, receive int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	done, _ := s.dones.Get().(chan struct{})
	defer s.dones.Put(done)
	c := &call{Request: r, receive: receive, done: done}
	c.deadline, _ = ctx.Deadline()
	if !s.put(c) {
		return nil, errUnsent
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if s.giveUp(c) {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		<-c.done // at this moment
	}
	if c.err != nil && fastwire.IsNoRoom(c.err) {
		return nil, errUnsent
	}
	return c.answer, c.err
}

// put queues a request, unless the stream is over.
func (s *stream) put(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.over {
		return false
	}
	s.mu.last++
	c.ID = s.mu.last
	s.mu.under[c.ID] = c
	s.mu.waiting = append(s.mu.waiting, c)
	s.signal()
	return true
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// giveUp ends the wait for a request, unless it is just being answered.
func (s *stream) giveUp(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.under[c.ID] != c {
		return false
	}
	s.forgetLocked(c)
	if c.sent {
		s.mu.waiting = append(s.mu.waiting, &call{Request: fastwire.Request{ID: c.ID, Cancel: true}})
		s.signal()
	}
	return true
}

// forgetLocked takes a request out. The last one of a stream that is over ends it.
func (s *stream) forgetLocked(c *call) {
	delete(s.mu.under, c.ID)
	if s.mu.over && len(s.mu.under) == 0 {
		s.cancel()
	}
}

// retire has the stream end when all that it carries is answered.
func (s *stream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.over = true
	if len(s.mu.under) == 0 {
		s.cancel()
	}
}

// leave stops using the stream of a member that stops. The member has taken the requests up to the
// ID last and answers them yet. The others had no effect, so calls make them.
func (s *stream) leave(last uint64) {
	s.ending.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.over = true
	for id, c := range s.mu.under { // IDs count up in the order in which requests are sent
		if id > last {
			delete(s.mu.under, id)
			c.err = errUnsent
			c.done <- struct{}{}
		}
	}
	if len(s.mu.under) == 0 {
		s.cancel()
	}
}

// end ends all that the stream carries. What was sent may have taken effect, or may yet.
func (s *stream) end(err error) {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.over = true
	for id, c := range s.mu.under {
		delete(s.mu.under, id)
		c.err = errUnsent
		if c.sent {
			c.err = status.Errorf(codes.Unavailable, "fastkv: the stream ended before the answer came, so the outcome is unknown: %v", err)
		}
		c.done <- struct{}{}
	}
}
