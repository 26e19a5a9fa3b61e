package fastkv

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

const (
	// answerTimeout is how long a stream may be silent while an answer is due, and how long
	// requests wait for a stream that is being opened. With a shorter time, slow answers end
	// streams. With a longer one, requests keep going to a stuck member.
	answerTimeout = time.Second
	// minRetry is the time from an attempt that reached the leader to the next attempt. Until
	// each endpoint has had its turn, other attempts follow each other at once. Then the time begins at twice minRetry
	// and doubles up to maxRetry. After a server that does not know the service, it is maxRetry.
	minRetry = 50 * time.Millisecond
	maxRetry = 10 * time.Second
	// helloTimeout is how long a server may take for its first message on a new stream.
	helloTimeout = 5 * time.Second
)

// streamManager opens and replaces the stream of one client.
type streamManager struct {
	ctx  context.Context // of the client
	conn grpc.ClientConnInterface
	// endpoints returns the client's endpoints. When they change, calls use the new ones at once, but gRPC keeps a
	// stream at its old endpoint.
	endpoints func() []string

	stream atomic.Pointer[stream]
	mu     struct {
		sync.Mutex
		opening  bool
		opened   chan struct{} // closed when the attempt in progress ends
		began    time.Time     // when that attempt began
		next     time.Time     // earliest time of the next attempt
		retry    time.Duration // the time between the last attempt and next
		attempts int           // since the last one that reached the leader
	}
}

// newStreamManager drops ctx's metadata, because each request carries its own.
func newStreamManager(ctx context.Context, conn grpc.ClientConnInterface, endpoints func() []string) *streamManager {
	return &streamManager{ctx: metadata.NewOutgoingContext(ctx, nil), conn: conn, endpoints: endpoints}
}

// current returns the stream for requests, or nil. It waits up to answerTimeout for one that is
// being opened. While the member is not the leader, it tries to open another one.
func (m *streamManager) current(ctx context.Context) *stream {
	now := time.Now()
	if s := m.usableStream(now); s != nil {
		if s.memberState.Load() != isLeader {
			m.startOpening(now)
		}
		return s
	}
	opened, wait := m.startOpening(now)
	if wait > 0 {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-opened:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	return m.usableStream(time.Now())
}

// usableStream returns the stream if it may carry requests.
func (m *streamManager) usableStream(now time.Time) *stream {
	if s := m.stream.Load(); s.usable(now) && slices.Equal(s.endpoints, m.endpoints()) {
		return s
	}
	return nil
}

// startOpening starts to open another stream, unless an attempt is in progress or was made
// recently. It returns a channel that is closed when the attempt ends, and how long to wait for
// it.
func (m *streamManager) startOpening(now time.Time) (opened <-chan struct{}, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.opening {
		return m.mu.opened, answerTimeout - now.Sub(m.mu.began)
	}
	if now.Before(m.mu.next) || m.ctx.Err() != nil {
		return nil, 0
	}
	m.mu.opening, m.mu.opened, m.mu.began = true, make(chan struct{}), now
	go func() {
		s, err := m.openStream()
		s = m.finishOpening(s, err)
		if s != nil {
			go s.send()
			s.receive()
		}
	}()
	return m.mu.opened, answerTimeout
}

// finishOpening ends an attempt. It returns the new stream if that replaces the current one. A stream to the leader
// always does. Another stream does if the current one is not usable, or if only the new stream's member knows the
// leader.
func (m *streamManager) finishOpening(s *stream, err error) *stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.opening = false
	defer close(m.mu.opened)
	m.mu.attempts++
	switch {
	case status.Code(err) == codes.Unimplemented:
		m.mu.retry = maxRetry
	case err == nil && s.memberState.Load() == isLeader:
		m.mu.retry, m.mu.attempts = minRetry, 0
	case m.mu.attempts < len(m.endpoints()):
		m.mu.retry = 0 // gRPC rotates through the endpoints, so the leader may be next
	default:
		m.mu.retry = min(2*max(m.mu.retry, minRetry), maxRetry)
	}
	now := time.Now()
	m.mu.next = now.Add(m.mu.retry)
	before := m.stream.Load()
	switch {
	case err != nil:
		return nil
	case m.usableStream(now) != nil && s.memberState.Load() >= max(before.memberState.Load(), knowsLeader):
		s.cancel()
		return nil
	case before != nil:
		before.retire()
	}
	m.stream.Store(s)
	return s
}

// openStream opens a stream and waits until the server has shown that it knows the service. A request that was sent
// before that might have to be repeated.
func (m *streamManager) openStream() (_ *stream, err error) {
	ctx, cancel := context.WithCancel(m.ctx)
	late := time.AfterFunc(helloTimeout, cancel)
	defer func() {
		if !late.Stop() && err == nil { // the stream is cancelled
			err = status.Error(codes.DeadlineExceeded, "fastkv: the server was late with its first message")
		}
		if err != nil {
			cancel()
		}
	}()
	desc := &grpc.StreamDesc{StreamName: fastwire.Stream, ServerStreams: true, ClientStreams: true}
	endpoints := m.endpoints() // before opening the stream, which may miss a change
	rpc, err := m.conn.NewStream(ctx, desc, fastwire.Method, grpc.ForceCodecV2(fastwire.NewCodec()), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, err
	}
	var hello fastwire.Raw
	if err := rpc.RecvMsg(&hello); err != nil {
		return nil, err
	}
	s := newStream(ctx, cancel, rpc)
	s.endpoints = endpoints
	if err := s.handleAnswers(hello); err != nil {
		return nil, err
	}
	return s, nil
}
