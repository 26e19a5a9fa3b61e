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

// stream sends requests to one member. It has two goroutines: a sender and a receiver.
type stream struct {
	ctx           context.Context // ends with the stream
	cancel        context.CancelFunc
	rpc           grpc.ClientStream
	wake          chan struct{} // wakes the sender; buffered by one
	endpoints     []string      // the client's when the stream was opened
	memberState   atomic.Int32  // isLeader, knowsLeader or noLeader
	stopping      atomic.Bool   // the member stops and accepts no more requests
	opened        time.Time
	awaitingSince atomic.Int64 // since when an answer is due and nothing has arrived, in ns after opened; or 0

	// donePool has empty channels of finished calls.
	donePool  sync.Pool
	answers   []fastwire.Answer // of the receiver, for reuse
	completed []*call           // of the receiver, for reuse

	mu struct {
		sync.Mutex
		last    uint64           // ID of the newest call
		pending map[uint64]*call // calls without an answer
		waiting []*call          // to be sent; some may not be pending any more
		closed  bool             // no more calls are accepted
	}
}

// The states of a member, the best first.
const (
	isLeader    = iota
	knowsLeader // a follower that knows the leader
	noLeader    // the member knows no leader
)

// call is one request. The goroutine that removes it from pending completes it.
type call struct {
	fastwire.Request

	deadline time.Time // zero without a deadline
	receive  int       // limit of the answer
	sent     bool      // set before sending; under the lock of stream
	answer   []byte
	err      error
	done     chan struct{} // receives once, when answer or err is set
}

func newStream(ctx context.Context, cancel context.CancelFunc, rpc grpc.ClientStream) *stream {
	s := &stream{ctx: ctx, cancel: cancel, rpc: rpc, wake: make(chan struct{}, 1), opened: time.Now()}
	s.donePool.New = func() any { return make(chan struct{}, 1) }
	s.mu.pending = make(map[uint64]*call)
	return s
}

// usable reports whether the stream may carry requests. s may be nil.
func (s *stream) usable(now time.Time) bool {
	if s == nil || s.stopping.Load() || s.ctx.Err() != nil {
		return false
	}
	since := time.Duration(s.awaitingSince.Load())
	return since == 0 || now.Sub(s.opened)-since < answerTimeout
}

// call makes a request and returns its response, which is limited to receive bytes.
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
		<-c.done // it is being completed
	}
	if c.err != nil && fastwire.IsOverBudget(c.err) {
		return nil, errUnsent
	}
	return c.answer, c.err
}

// enqueue queues a call. It returns false if the stream is closed.
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

// cancelCall ends the wait of a call. It returns false if the call is being completed.
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

// forgetLocked removes a call. Removing the last call of a closed stream ends the stream.
func (s *stream) forgetLocked(c *call) {
	delete(s.mu.pending, c.ID)
	if s.mu.closed && len(s.mu.pending) == 0 {
		s.cancel()
	}
}

// retire ends the stream when its pending calls are answered.
func (s *stream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	if len(s.mu.pending) == 0 {
		s.cancel()
	}
}

// memberStopping stops using the stream of a stopping member. The member has received the calls
// up to the ID last and still answers them. The later ones had no effect and are made as gRPC
// calls.
func (s *stream) memberStopping(last uint64) {
	s.stopping.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for id, c := range s.mu.pending { // IDs increase in the order of sending
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

// end ends the stream and fails its pending calls. Calls that were sent may have taken effect, or
// may still do so.
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

// send sends all waiting calls, in one message if they fit, until the stream ends.
func (s *stream) send() {
	var calls []*call
	var yields yieldPolicy
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		if now := time.Now(); yields.shouldYield(now) {
			runtime.Gosched() // other goroutines may have a request, too, and a message costs more than a yield
			yields.yielded(now, time.Now())
		}
		calls = s.takeWaiting(calls)
		for rest := calls; len(rest) > 0; {
			var message []byte
			var hasRequest bool
			message, rest, hasRequest = encode(rest)
			if len(message) == 0 {
				continue
			}
			if hasRequest { // before SendMsg, because the answer may arrive before it returns
				s.awaitingSince.CompareAndSwap(0, max(int64(time.Since(s.opened)), 1))
			}
			if err := s.rpc.SendMsg(fastwire.Raw(message)); err != nil {
				return // the receiver gets the error
			}
		}
	}
}

// longYield is the duration of a yield above which the sender does not yield for yieldPause. A thousand goroutines
// that each make a request need less. A goroutine that computes runs for the 10 ms after which Go preempts it.
const longYield = 2 * time.Millisecond

// yieldPause is how long the sender does not yield after a long yield.
const yieldPause = 50 * longYield

// yieldPolicy decides whether the sender yields the processor before it sends.
type yieldPolicy struct{ notBefore time.Time }

func (p *yieldPolicy) shouldYield(now time.Time) bool { return !now.Before(p.notBefore) }

// yielded records a yield, and disables yields for yieldPause if it was long.
func (p *yieldPolicy) yielded(from, to time.Time) {
	if to.Sub(from) > longYield {
		p.notBefore = to.Add(yieldPause)
	}
}

// takeWaiting returns all waiting calls, which count as sent from now on. It reuses spare.
func (s *stream) takeWaiting(spare []*call) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(spare) // drops references to former calls
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

// requestOverhead is the approximate size of an encoded request without its message and metadata.
const requestOverhead = 40

// encode returns the next message of calls, and the calls that do not fit in it. It drops calls after their deadline.
// hasRequest reports whether the message has a request, and not only cancellations, to which no answer is due.
func encode(calls []*call) (message []byte, rest []*call, hasRequest bool) {
	size := 0
	for _, c := range calls {
		size += len(c.Message) + requestOverhead
	}
	message = make([]byte, 0, min(size, fastwire.MaxMessage))
	for i, c := range calls {
		if len(message) > fastwire.MaxMessage-maxRequest {
			return message, calls[i:], hasRequest
		}
		r := c.Request
		if !c.deadline.IsZero() {
			if r.Timeout = time.Until(c.deadline); r.Timeout <= 0 {
				continue
			}
		}
		message = fastwire.AppendRequest(message, r)
		hasRequest = hasRequest || !r.Cancel
	}
	return message, nil, hasRequest
}

// receive handles answers until the stream ends.
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

// handleAnswers completes the calls that a message answers. Only the receiver calls it.
func (s *stream) handleAnswers(message fastwire.Raw) error {
	s.awaitingSince.Store(0)
	s.answers = s.answers[:0]
	state, err := fastwire.Answers(message, func(a fastwire.Answer) { s.answers = append(s.answers, a) })
	for _, c := range s.match(s.answers) {
		c.done <- struct{}{} // not under the lock, which the woken goroutine may need
	}
	clear(s.answers) // or the last message and its calls would stay in memory
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

// match adds answers to their calls and returns the completed ones.
func (s *stream) match(answers []fastwire.Answer) []*call {
	s.completed = s.completed[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range answers {
		if c := s.mu.pending[answers[i].ID]; c != nil && c.addAnswer(&answers[i]) { // otherwise the call was cancelled
			s.forgetLocked(c)
			s.completed = append(s.completed, c)
		}
	}
	return s.completed
}

// addAnswer adds an answer, or a piece of one. It returns true if the call is complete.
func (c *call) addAnswer(a *fastwire.Answer) bool {
	switch n := len(c.answer) + len(a.Message); {
	case n > c.receive: // even if more follows
		c.answer = nil
		c.err = status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, c.receive) // gRPC's text
		return true
	case a.Code != 0:
		c.err = status.Error(codes.Code(a.Code), string(a.Text))
	case c.answer == nil:
		c.answer = slices.Clip(a.Message) // the bytes after it in the array belong to other answers
	default:
		c.answer = append(c.answer, a.Message...)
	}
	return !a.More
}
