package fastkv

import (
	"context"
	"runtime"
	"slices"
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
	memberState    atomic.Int32  // leads, follows or alone
	stopping    atomic.Bool   // the member stops, and takes no further request
	opened    time.Time
	awaitingSince      atomic.Int64 // since when nothing was heard though an answer is due, in nanoseconds after opened; 0 if none is

	// donePool are channels of calls that nothing is in, and that nobody tells anything any more.
	donePool   sync.Pool
	answers []fastwire.Answer // of who receives, for use again
	completed    []*call           // likewise

	mu struct {
		sync.Mutex
		last    uint64           // ID
		pending   map[uint64]*call // those without an answer
		waiting []*call          // to be sent; some may be under way no more
		closed    bool             // nothing is taken any more
	}
}

// What a member is, the best first.
const (
	isLeader   = iota
	knowsLeader // and knows who leads
	noLeader   // it knows nobody who does
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
	s.donePool.New = func() any { return make(chan struct{}, 1) }
	s.mu.pending = make(map[uint64]*call)
	return s
}

// usable reports whether requests may go by the stream.
func (s *stream) usable(now time.Time) bool {
	if s == nil || s.stopping.Load() || s.ctx.Err() != nil {
		return false
	}
	owed := time.Duration(s.awaitingSince.Load())
	return owed == 0 || now.Sub(s.opened)-owed < answerTimeout
}

// call makes a request and returns its response, which may have so many bytes.
func (s *stream) call(ctx context.Context, r fastwire.Request, receive int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	done, _ := s.donePool.Get().(chan struct{})
	defer s.donePool.Put(done)
	c := &call{Request: r, receive: receive, done: done}
	c.deadline, _ = ctx.Deadline()
	if !s.enqueue(c) {
		return nil, errUnsent
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if s.cancelCall(c) {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		<-c.done // at this moment
	}
	if c.err != nil && fastwire.IsOverBudget(c.err) {
		return nil, errUnsent
	}
	return c.answer, c.err
}

// enqueue queues a request, unless the stream is over.
func (s *stream) enqueue(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.last++
	c.ID = s.mu.last
	s.mu.pending[c.ID] = c
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

// cancelCall ends the wait for a request, unless it is just being answered.
func (s *stream) cancelCall(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.pending[c.ID] != c {
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
	delete(s.mu.pending, c.ID)
	if s.mu.closed && len(s.mu.pending) == 0 {
		s.cancel()
	}
}

// retire has the stream end when all that it carries is answered.
func (s *stream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	if len(s.mu.pending) == 0 {
		s.cancel()
	}
}

// memberStopping stops using the stream of a member that stops. The member has taken the requests up to the
// ID last and answers them yet. The others had no effect, so calls make them.
func (s *stream) memberStopping(last uint64) {
	s.stopping.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for id, c := range s.mu.pending { // IDs count up in the order in which requests are sent
		if id > last {
			delete(s.mu.pending, id)
			c.err = errUnsent
			c.done <- struct{}{}
		}
	}
	if len(s.mu.pending) == 0 {
		s.cancel()
	}
}

// end ends all that the stream carries. What was sent may have taken effect, or may yet.
func (s *stream) end(err error) {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for id, c := range s.mu.pending {
		delete(s.mu.pending, id)
		c.err = errUnsent
		if c.sent {
			c.err = status.Errorf(codes.Unavailable, "fastkv: the stream ended before the answer came, so the outcome is unknown: %v", err)
		}
		c.done <- struct{}{}
	}
}

// send sends what waits, all of it in one message if it fits, until the stream ends.
func (s *stream) send() {
	var calls []*call
	var others yieldPolicy
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		if now := time.Now(); others.shouldYield(now) {
			runtime.Gosched() // whoever else can run may have a request, too, and messages cost more than that
			others.yielded(now, time.Now())
		}
		calls = s.takeWaiting(calls)
		for rest := calls; len(rest) > 0; {
			var message []byte
			var asks bool
			message, rest, asks = encode(rest)
			if len(message) == 0 {
				continue
			}
			if asks { // what is sent may be answered before SendMsg returns
				s.awaitingSince.CompareAndSwap(0, max(int64(time.Since(s.opened)), 1))
			}
			if err := s.rpc.SendMsg(fastwire.Raw(message)); err != nil {
				return // who receives learns why
			}
		}
	}
}

// longYield is how long others may run, before a message is sent, without it being given up. Those
// of a thousand goroutines that have a request each take less; one that has work of its own takes
// the 10 ms after which Go takes the processor from it. Shorter: messages of busy clients have
// fewer requests. Longer: requests wait for what has none.
const longYield = 2 * time.Millisecond

// yieldPause is for how long they do not run then. Shorter: more requests of busy clients wait. Longer:
// more messages with few requests after a moment in which the machine stood still.
const yieldPause = 50 * longYield

// yieldPolicy decides whether yieldPolicy are to run before a message is sent.
type yieldPolicy struct{ notBefore time.Time } // before this

func (o *yieldPolicy) shouldYield(now time.Time) bool { return !now.Before(o.notBefore) }

// yielded notes that they yielded. Where that took long they do not for a while.
func (o *yieldPolicy) yielded(from, to time.Time) {
	if to.Sub(from) > longYield {
		o.notBefore = to.Add(yieldPause)
	}
}

// takeWaiting returns all that waits. From here on it counts as sent.
func (s *stream) takeWaiting(spare []*call) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(spare) // drops what its elements refer to
	calls := s.mu.waiting
	s.mu.waiting = spare[:0]
	kept := calls[:0]
	for _, c := range calls {
		if c.Cancel || s.mu.pending[c.ID] == c {
			c.sent = true
			kept = append(kept, c)
		}
	}
	return kept
}

// requestOverhead is about what a request takes beside its own message, without metadata.
const requestOverhead = 40

// encode returns the next message of calls, and those that have no room in it. Whose time is
// over is left out: it ends by itself. It reports whether an answer is due to any of the
// message: the end of a wait has none if it crosses the answer.
func encode(calls []*call) (message []byte, rest []*call, asks bool) {
	size := 0
	for _, c := range calls {
		size += len(c.Message) + requestOverhead
	}
	message = make([]byte, 0, min(size, fastwire.MaxMessage))
	for i, c := range calls {
		if len(message) > fastwire.MaxMessage-maxRequest {
			return message, calls[i:], asks
		}
		r := c.Request
		if !c.deadline.IsZero() {
			if r.Timeout = time.Until(c.deadline); r.Timeout <= 0 {
				continue
			}
		}
		message = fastwire.AppendRequest(message, r)
		asks = asks || !r.Cancel
	}
	return message, nil, asks
}

// receive hands out answers until the stream ends.
func (s *stream) receive() {
	for {
		var message fastwire.Raw
		err := s.rpc.RecvMsg(&message)
		if err == nil {
			err = s.handleAnswers(message)
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// handleAnswers hands out the answers of one message. It is for who receives.
func (s *stream) handleAnswers(message fastwire.Raw) error {
	s.awaitingSince.Store(0)
	s.answers = s.answers[:0]
	state, err := fastwire.Answers(message, func(a fastwire.Answer) { s.answers = append(s.answers, a) })
	for _, c := range s.match(s.answers) {
		c.done <- struct{}{} // without the lock, which who wakes may want next
	}
	clear(s.answers) // or the last message would stay, and its requests
	clear(s.completed)
	switch {
	case state.Member == 0:
	case state.Leader == state.Member:
		s.memberState.Store(isLeader)
	case state.Leader != 0:
		s.memberState.Store(knowsLeader)
	default:
		s.memberState.Store(noLeader)
	}
	if state.Stopping {
		s.memberStopping(state.Last)
	}
	return err
}

// match gives answers to their requests, and returns those that are over.
func (s *stream) match(answers []fastwire.Answer) []*call {
	s.completed = s.completed[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range answers {
		if c := s.mu.pending[answers[i].ID]; c != nil && c.addAnswer(&answers[i]) { // else its client waits no longer
			s.forgetLocked(c)
			s.completed = append(s.completed, c)
		}
	}
	return s.completed
}

// addAnswer takes an answer, or a piece of one. It reports whether that is all.
func (c *call) addAnswer(a *fastwire.Answer) bool {
	switch n := len(c.answer) + len(a.Message); {
	case n > c.receive: // whatever follows
		c.answer = nil
		c.err = status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, c.receive) // gRPC's words
		return true
	case a.Code != 0:
		c.err = status.Error(codes.Code(a.Code), string(a.Text))
	case c.answer == nil:
		c.answer = slices.Clip(a.Message) // what follows is another's
	default:
		c.answer = append(c.answer, a.Message...)
	}
	return !a.More
}
