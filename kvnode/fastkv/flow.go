package fastkv

import (
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// send sends what waits, all of it in one message if it fits, until the stream ends.
func (s *stream) send() {
	var calls []*call
	var others others
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		if now := time.Now(); others.mayRun(now) {
			runtime.Gosched() // whoever else can run may have a request, too, and messages cost more than that
			others.ran(now, time.Now())
		}
		calls = s.leaving(calls)
		for rest := calls; len(rest) > 0; {
			var message []byte
			var asks bool
			message, rest, asks = encode(rest)
			if len(message) == 0 {
				continue
			}
			if asks { // what is sent may be answered before SendMsg returns
				s.owed.CompareAndSwap(0, max(int64(time.Since(s.opened)), 1))
			}
			if err := s.rpc.SendMsg(fastwire.Raw(message)); err != nil {
				return // who receives learns why
			}
		}
	}
}

// longRun is how long others may run, before a message is sent, without it being given up. Those
// of a thousand goroutines that have a request each take less; one that has work of its own takes
// the 10 ms after which Go takes the processor from it. Shorter: messages of busy clients have
// fewer requests. Longer: requests wait for what has none.
const longRun = 2 * time.Millisecond

// noRun is for how long they do not run then. Shorter: more requests of busy clients wait. Longer:
// more messages with few requests after a moment in which the machine stood still.
const noRun = 50 * longRun

// others decides whether others are to run before a message is sent.
type others struct{ not time.Time } // before this

func (o *others) mayRun(now time.Time) bool { return !now.Before(o.not) }

// ran notes that they ran. Where that took long they do not for a while.
func (o *others) ran(from, to time.Time) {
	if to.Sub(from) > longRun {
		o.not = to.Add(noRun)
	}
}

// leaving returns all that waits. From here on it counts as sent.
func (s *stream) leaving(spare []*call) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(spare) // drops what its elements refer to
	calls := s.mu.waiting
	s.mu.waiting = spare[:0]
	kept := calls[:0]
	for _, c := range calls {
		if c.Cancel || s.mu.under[c.ID] == c {
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
			err = s.answered(message)
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// answered hands out the answers of one message. It is for who receives.
func (s *stream) answered(message fastwire.Raw) error {
	s.owed.Store(0)
	s.answers = s.answers[:0]
	state, err := fastwire.Answers(message, func(a fastwire.Answer) { s.answers = append(s.answers, a) })
	for _, c := range s.arrived(s.answers) {
		c.done <- struct{}{} // without the lock, which who wakes may want next
	}
	clear(s.answers) // or the last message would stay, and its requests
	clear(s.over)
	switch {
	case state.Member == 0:
	case state.Leader == state.Member:
		s.member.Store(leads)
	case state.Leader != 0:
		s.member.Store(follows)
	default:
		s.member.Store(alone)
	}
	if state.Ending {
		s.leave(state.Last)
	}
	return err
}

// arrived gives answers to their requests, and returns those that are over.
func (s *stream) arrived(answers []fastwire.Answer) []*call {
	s.over = s.over[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range answers {
		if c := s.mu.under[answers[i].ID]; c != nil && c.take(&answers[i]) { // else its client waits no longer
			s.forgetLocked(c)
			s.over = append(s.over, c)
		}
	}
	return s.over
}

// take takes an answer, or a piece of one. It reports whether that is all.
func (c *call) take(a *fastwire.Answer) bool {
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
