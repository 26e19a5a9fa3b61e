package etcdapi

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// large is an answer that has room of its own. It is sent in pieces, one for each message,
// so that small ones need not wait for all of it.
type large struct {
	fastwire.Answer

	room *room
}

// untilTaken returns once so many answers have been sent that there is room for one more.
func (s *fastStream) untilTaken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.tooMany(s.mu.bytes - s.mu.asked) {
		s.mu.ready.Signal()
		s.mu.room.Wait()
	}
}

// answer queues what became of an item.
func (s *fastStream) answer(id uint64, resp any, err error) {
	a := fastwire.Answer{ID: id}
	var r *room
	if w, ok := resp.(*weighed); ok {
		resp, r = w.message, w.room
	}
	if err == nil {
		m, _ := resp.(proto.Message)
		a.Message, err = proto.Marshal(m)
	}
	if err != nil {
		st, ok := status.FromError(err)
		if !ok {
			st = status.FromContextError(err) // as gRPC does
		}
		a.Code, a.Text, a.Message = uint32(st.Code()), []byte(st.Message()), nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.mu.under[id]
	switch {
	case i != nil:
		delete(s.mu.under, id)
		s.mu.asked -= i.size
		s.chargeLocked(-i.size)
		s.mu.room.Broadcast()
		s.mu.ready.Signal()
	case s.mu.ended:
		return // nobody may send it
	}
	if r != nil {
		s.mu.large = append(s.mu.large, &large{a, r})
		return
	}
	last, before := s.messageLocked()
	*last = fastwire.AppendAnswer(*last, a)
	s.chargeLocked(len(*last) - before)
}

// messageLocked returns the message that the next small answer goes into, and how many bytes of
// it are charged.
func (s *fastStream) messageLocked() (last *[]byte, charged int) {
	n := len(s.mu.out)
	if n > 0 && len(s.mu.out[n-1]) <= fastwire.MaxMessage {
		return &s.mu.out[n-1], len(s.mu.out[n-1])
	}
	s.mu.out = append(s.mu.out, s.who())
	return &s.mu.out[n], 0
}

// who begins a message.
func (s *fastStream) who() []byte {
	return fastwire.AppendWho(nil, s.kv.node.ID(), s.kv.node.Leader())
}

// send sends what there is until the stream has ended and nothing is under way. The first
// message, which has no answer, says that this member knows the service.
func (s *fastStream) send() {
	message, after := s.who(), func() {}
	for ok := true; ok; message, after, ok = s.next() {
		err := s.stream.SendMsg(fastwire.Raw(message))
		after()
		if err != nil {
			s.cancel(status.Error(codes.Canceled, "the client has gone")) // nobody waits for what is under way
		}
	}
}

// next returns the next message once there is one, and what is to be called when it is
// sent. There is none when all is over.
func (s *fastStream) next() (message []byte, after func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.mu.out)+len(s.mu.large) == 0 {
		if s.mu.ended && len(s.mu.under) == 0 {
			return nil, nil, false
		}
		s.mu.ready.Wait()
	}
	if len(s.mu.out) > 0 {
		message = s.mu.out[0]
		s.mu.out = s.mu.out[1:]
	}
	small := len(message)
	var done *room
	if len(s.mu.large) > 0 {
		message, done = s.pieceLocked(message)
	}
	return message, func() {
		if done != nil {
			done.release()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.chargeLocked(-small)
		s.mu.room.Broadcast()
	}, true
}

// pieceLocked appends the next piece of the large answer that waits for longest. With the
// last piece it returns the answer's room.
func (s *fastStream) pieceLocked(message []byte) (_ []byte, done *room) {
	l := s.mu.large[0]
	piece := l.Answer
	if piece.More = len(l.Message) > fastwire.MaxMessage; piece.More {
		piece.Message, l.Message = l.Message[:fastwire.MaxMessage], l.Message[fastwire.MaxMessage:]
	} else {
		s.mu.large, done = s.mu.large[1:], l.room
	}
	return fastwire.AppendAnswer(message, piece), done
}
