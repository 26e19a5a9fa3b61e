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
	// minRetry is the time between attempts to open a stream after each endpoint had its turn. It
	// doubles up to maxRetry with each attempt that does not reach the leader. With shorter times
	// the client asks servers that do not know the service, or cannot be reached, more often.
	// With longer ones requests are calls, or go to a follower, for longer.
	minRetry = 50 * time.Millisecond
	maxRetry = 10 * time.Second
	// helloTimeout is how long a server may take for its first message on a new stream.
	helloTimeout = 5 * time.Second
)

// streamManager opens and replaces the stream of one client.
type streamManager struct {
	ctx  context.Context // of the client
	conn grpc.ClientConnInterface
	// endpoints returns the client's endpoints. When they change, calls use the new ones at once,
	// but gRPC leaves a stream where it is.
	endpoints func() []string

	now atomic.Pointer[stream]
	mu  struct {
		sync.Mutex
		opening  bool
		opened   chan struct{} // closed when the attempt in progress ends
		began    time.Time     // when that attempt began
		next     time.Time     // earliest time of the next attempt
		retry    time.Duration // the time between the last attempt and next
		attempts int           // since the last one that reached the leader
	}
}

// newStreamManager drops ctx's metadata: each request carries its own, and calls would not have
// that of ctx.
func newStreamManager(ctx context.Context, conn grpc.ClientConnInterface, endpoints func() []string) *streamManager {
	return &streamManager{ctx: metadata.NewOutgoingContext(ctx, nil), conn: conn, endpoints: endpoints}
}

// current returns the stream for requests, or nil. It waits up to answerTimeout for one that is
// being opened. While the member is not the leader, it tries to open another one.
func (k *streamManager) current(ctx context.Context) *stream {
	now := time.Now()
	if s := k.usableStream(now); s != nil {
		if s.memberState.Load() != isLeader {
			k.startOpening(now)
		}
		return s
	}
	opened, wait := k.startOpening(now)
	if wait > 0 {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-opened:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	return k.usableStream(time.Now())
}

// usableStream returns the stream if it may carry requests.
func (k *streamManager) usableStream(now time.Time) *stream {
	if s := k.now.Load(); s.usable(now) && slices.Equal(s.endpoints, k.endpoints()) {
		return s
	}
	return nil
}

// startOpening starts to open another stream, unless an attempt is in progress or was made
// recently. It returns a channel that is closed when the attempt ends, and how long to wait for
// it.
func (k *streamManager) startOpening(now time.Time) (opened <-chan struct{}, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.opening {
		return k.mu.opened, answerTimeout - now.Sub(k.mu.began)
	}
	if now.Before(k.mu.next) || k.ctx.Err() != nil {
		return nil, 0
	}
	k.mu.opening, k.mu.opened, k.mu.began = true, make(chan struct{}), now
	go func() {
		s, err := k.openStream()
		s = k.finishOpening(s, err)
		if s != nil {
			go s.send()
			s.receive()
		}
	}()
	return k.mu.opened, answerTimeout
}

// finishOpening ends an attempt. It returns the new stream if it replaces the current one, which
// it does unless the current one is at least as good.
func (k *streamManager) finishOpening(s *stream, err error) *stream {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.opening = false
	defer close(k.mu.opened)
	k.mu.attempts++
	switch {
	case status.Code(err) == codes.Unimplemented:
		k.mu.retry = maxRetry
	case err == nil && s.memberState.Load() == isLeader:
		k.mu.retry, k.mu.attempts = minRetry, 0
	case k.mu.attempts < len(k.endpoints()):
		k.mu.retry = 0 // gRPC rotates through the endpoints, so the leader may be next
	default:
		k.mu.retry = min(2*max(k.mu.retry, minRetry), maxRetry)
	}
	now := time.Now()
	k.mu.next = now.Add(k.mu.retry)
	before := k.now.Load()
	switch {
	case err != nil:
		return nil
	case k.usableStream(now) != nil && s.memberState.Load() >= max(before.memberState.Load(), knowsLeader):
		s.cancel()
		return nil
	case before != nil:
		before.retire()
	}
	k.now.Store(s)
	return s
}

// openStream opens a stream and waits until the server has shown that it knows the service.
// Before, no request is sent that would have to be repeated.
func (k *streamManager) openStream() (_ *stream, err error) {
	ctx, cancel := context.WithCancel(k.ctx)
	late := time.AfterFunc(helloTimeout, cancel)
	defer func() {
		if err != nil || !late.Stop() {
			cancel()
		}
	}()
	desc := &grpc.StreamDesc{StreamName: fastwire.Stream, ServerStreams: true, ClientStreams: true}
	endpoints := k.endpoints() // before opening the stream, which may miss a change
	rpc, err := k.conn.NewStream(ctx, desc, fastwire.Method, grpc.ForceCodecV2(fastwire.NewCodec()), grpc.MaxCallRecvMsgSize(math.MaxInt32))
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
