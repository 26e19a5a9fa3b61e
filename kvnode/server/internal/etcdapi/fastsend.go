package etcdapi

import (
	"runtime"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// largeAnswer is an answer with a reservation. It is sent in pieces, one per message, so that
// small answers do not wait for all of it.
type largeAnswer struct {
	fastwire.Answer

	reservation *reservation
}

// waitForSpace returns when enough answers are written that one more fits.
func (s *fastStream) waitForSpace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.bytes-s.mu.pendingCost >= fairFastBytes && !s.fitsLocked(0) && s.stream.Context().Err() == nil {
		s.mu.ready.Signal()
		s.mu.space.Wait()
	}
}

// answer queues the answer of a request.
func (s *fastStream) answer(id uint64, resp any, err error) {
	a := fastwire.Answer{ID: id}
	var r *reservation
	if w, ok := resp.(*reservedReply); ok {
		resp, r = w.message, w.reservation
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
	i := s.mu.pending[id]
	switch {
	case i != nil:
		delete(s.mu.pending, id)
		s.mu.pendingCost -= i.cost
		s.chargeLocked(-i.cost)
		s.mu.space.Broadcast()
		s.mu.ready.Signal()
	case s.mu.ended:
		return // an ended stream answers only pending requests
	}
	if r != nil {
		s.mu.large = append(s.mu.large, &largeAnswer{a, r})
		return
	}
	last, charged := s.currentMessageLocked(len(a.Message))
	*last = fastwire.AppendAnswer(*last, a)
	s.chargeLocked(cap(*last) - charged)
}

// currentMessageLocked returns the message for the next size bytes of small answers, and how many
// of its bytes are charged already.
func (s *fastStream) currentMessageLocked(size int) (last *[]byte, charged int) {
	n := len(s.mu.messages)
	if n > 0 && len(s.mu.messages[n-1]) <= fastwire.MaxMessage {
		return &s.mu.messages[n-1], cap(s.mu.messages[n-1])
	}
	s.mu.messages = append(s.mu.messages, s.newMessage(size))
	return &s.mu.messages[n], 0
}

const (
	// minMessage is the minimum capacity of a message: gRPC does not report when it has written a
	// message of up to 1 KiB.
	minMessage = 2 << 10
	// maxUnwritten limits the messages of a stream that gRPC holds and has not written yet. Further
	// answers share a message. With more, a client that does not read makes the member keep
	// minMessage bytes for each. With two, gRPC writes to the connection more often: 256 puts at
	// the same time take a third longer.
	maxUnwritten = 16
	// smallMessage is the maximum initial capacity of a message with a small first answer. It is not
	// above requestCost, so the first answer takes no more space than its request frees.
	smallMessage = requestCost
	// maxSpareMessage is the maximum capacity of a message that is reused.
	maxSpareMessage = 64 << 10
)

// spareMessages are written messages for reuse, largeSpares those above smallMessage.
var (
	spareMessages = sync.Pool{New: func() any { return new(make([]byte, 0, minMessage)) }}
	largeSpares   sync.Pool
)

// newMessage begins a message of about size bytes, in a spare buffer if there is one.
func (s *fastStream) newMessage(size int) []byte {
	var spare *[]byte
	if size > smallMessage/2 {
		spare, _ = largeSpares.Get().(*[]byte)
	}
	if spare == nil {
		spare, _ = spareMessages.Get().(*[]byte)
	}
	return fastwire.AppendMember((*spare)[:0], s.kv.node.ID(), s.kv.node.Leader())
}

// outMessage is a message that gRPC holds until it is written.
type outMessage struct {
	mem.NopBufferPool

	stream      *fastStream
	data        []byte
	charged     int
	reservation *reservation // of the large answer that data completes, or nil
	written     bool         // under the lock of stream
}

// marshal returns the bytes for gRPC. gRPC calls Put after writing them, unless the stream has
// ended.
func (o *outMessage) marshal() mem.BufferSlice {
	if o.reservation != nil {
		runtime.AddCleanup(o, (*reservation).release, o.reservation)
	}
	return mem.BufferSlice{mem.NewBuffer(&o.data, o)}
}

// Put implements mem.BufferPool.
func (o *outMessage) Put(*[]byte) {
	if o.reservation != nil {
		o.reservation.release()
	}
	s := o.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.written || s.mu.closed {
		return
	}
	o.written = true
	s.mu.unwritten--
	s.chargeLocked(-o.charged)
	s.mu.space.Broadcast()
	if s.mu.unwritten == maxUnwritten-1 {
		s.mu.ready.Signal()
	}
	switch c := cap(o.data); {
	case c <= smallMessage:
		spareMessages.Put(&o.data)
	case c <= maxSpareMessage:
		largeSpares.Put(&o.data)
	}
}

// send sends messages until the stream has ended and no request is pending. The first message has
// no answer and shows the client that this member knows the service.
func (s *fastStream) send() {
	message := s.greeting()
	for ok := true; ok; message, ok = s.next() {
		if err := s.stream.SendMsg(message); err != nil {
			message.Put(nil)
			s.cancel(status.Error(codes.Canceled, "the client has gone")) // pending requests have no client
		}
	}
}

func (s *fastStream) greeting() *outMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.unwritten++
	return &outMessage{stream: s, data: s.newMessage(0)}
}

// next waits until there is a message, and gRPC has fewer than maxUnwritten unwritten ones. ok is false after
// the last message.
func (s *fastStream) next() (message *outMessage, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		none := len(s.mu.messages)+len(s.mu.large) == 0
		if none && s.mu.ended && len(s.mu.pending) == 0 {
			return nil, false
		}
		if !none && (s.mu.unwritten < maxUnwritten || s.stream.Context().Err() != nil) {
			break
		}
		s.mu.ready.Wait()
	}
	o := &outMessage{stream: s}
	if len(s.mu.messages) > 0 {
		o.data = s.mu.messages[0]
		o.charged = cap(o.data)
		s.mu.messages = s.mu.messages[1:]
	} else {
		o.data = s.newMessage(0)
	}
	if len(s.mu.large) > 0 {
		o.data, o.reservation = s.pieceLocked(o.data)
	}
	s.mu.unwritten++
	return o, true
}

// pieceLocked appends the next piece of the oldest large answer. With the last piece it returns
// the answer's reservation.
func (s *fastStream) pieceLocked(message []byte) (_ []byte, done *reservation) {
	l := s.mu.large[0]
	piece := l.Answer
	if piece.More = len(l.Message) > fastwire.MaxMessage; piece.More {
		piece.Message, l.Message = l.Message[:fastwire.MaxMessage], l.Message[fastwire.MaxMessage:]
	} else {
		s.mu.large, done = s.mu.large[1:], l.reservation
	}
	return fastwire.AppendAnswer(message, piece), done
}
