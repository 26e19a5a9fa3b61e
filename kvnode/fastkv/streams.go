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
	// answerTimeout is after how long without an answer a stream is not used, and for how long
	// requests wait for one that is being opened. Shorter: slow answers cost a stream.
	// Longer: requests go to a member that hangs for longer.
	answerTimeout = time.Second
	// minRetry is after how long another stream is tried once each endpoint had its turn,
	// doubled by each attempt that leads to no leader, but not above longAgain. Shorter: a
	// server that does not know the service, or one that cannot be reached, is asked in vain
	// more often. Longer: requests go by calls for longer, or by way of a follower.
	minRetry     = 50 * time.Millisecond
	maxRetry = 10 * time.Second
	// helloTimeout is for how long a server may say nothing on a new stream.
	helloTimeout = 5 * time.Second
)

// streamManager are the stream of one client, and those before and after it.
type streamManager struct {
	ctx  context.Context // of the client
	conn grpc.ClientConnInterface
	// endpoints are the client's. It may be told of others, by which its calls go at once;
	// gRPC leaves a stream where it is.
	endpoints func() []string

	now atomic.Pointer[stream]
	mu  struct {
		sync.Mutex
		opening bool
		opened  chan struct{} // closed when the newest attempt is over
		began   time.Time     // when it began
		next    time.Time     // when the next one may
		retry   time.Duration // before that
		attempts   int           // since one last led to a leader
	}
}

// newStreamManager opens streams without the metadata that ctx may have: each request has its own,
// and calls would not have those.
func newStreamManager(ctx context.Context, conn grpc.ClientConnInterface, endpoints func() []string) *streamManager {
	return &streamManager{ctx: metadata.NewOutgoingContext(ctx, nil), conn: conn, endpoints: endpoints}
}

// current returns the stream that requests go by, nil if there is none. It waits no longer
// than pause for one that is being opened. While the member does not lead others are tried.
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

// usableStream returns the stream if requests may go by it.
func (k *streamManager) usableStream(now time.Time) *stream {
	if s := k.now.Load(); s.usable(now) && slices.Equal(s.endpoints, k.endpoints()) {
		return s
	}
	return nil
}

// startOpening opens another stream, unless one is being opened, or was a moment ago. It returns
// what is closed when that is over, and for how long to wait for it.
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

// finishOpening ends an attempt. It returns the new stream if that is used from now on, which it
// is unless the one before is no worse.
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
		k.mu.retry = 0 // gRPC goes round them, so the leader may be the next
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

// openStream opens a stream and waits until the server has shown that it knows the service:
// until then nothing is sent that would have to be sent again.
func (k *streamManager) openStream() (_ *stream, err error) {
	ctx, cancel := context.WithCancel(k.ctx)
	late := time.AfterFunc(helloTimeout, cancel)
	defer func() {
		if err != nil || !late.Stop() {
			cancel()
		}
	}()
	desc := &grpc.StreamDesc{StreamName: fastwire.Stream, ServerStreams: true, ClientStreams: true}
	endpoints := k.endpoints() // before the stream is opened: it may miss a change
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
