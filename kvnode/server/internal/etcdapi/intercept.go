package etcdapi

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// interceptUnary limits the number and the time of requests, rejects a request that requires a
// leader when there is none, and recovers from panics.
func (a *API) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	if slices.Contains(a.cfg.WaitingMethods, info.FullMethod) {
		return a.interceptWaiting(ctx, req, info, handle)
	}
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, a.recoveredError(info.FullMethod, p)
		}
	}()
	begun := time.Now()
	resp, err = a.handleBounded(ctx, begun, req, info.FullMethod, handle)
	a.recordRequest(ctx, info.FullMethod, req, resp, err, time.Since(begun))
	if err != nil {
		return nil, authError(info.FullMethod, err)
	}
	// The handler is done, so a reply that waits for memory does not count towards
	// MaxInFlight. The reply budget has its own limit.
	return a.reserveReply(ctx, resp)
}

// handleBounded handles a request that has just begun, unless too many are in progress.
func (a *API) handleBounded(ctx context.Context, begun time.Time, req any, method string, handle grpc.UnaryHandler) (any, error) {
	defer a.inFlight.Add(-1)
	inFlight := a.inFlight.Add(1)
	if err := a.checkAdmission(inFlight, a.node.Leader() == 0 && requiresLeader(ctx)); err != nil {
		return nil, err
	}
	if method == pb.Maintenance_Defragment_FullMethodName {
		// It does not wait for other members, and takes as long as copying the store.
		return handle(ctx, req)
	}
	return a.handleWithTimeout(ctx, begun, req, handle)
}

// checkAdmission rejects a request if the number in progress, including this one, is above
// MaxInFlight, or if it requires a leader and there is none.
func (a *API) checkAdmission(inFlight int64, requiresLeader bool) error {
	if inFlight > int64(a.cfg.MaxInFlight) {
		return status.Errorf(codes.ResourceExhausted, "kvnode: too many requests: %d are under way, which is the limit", a.cfg.MaxInFlight)
	}
	if requiresLeader && a.node.Leader() == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	return nil
}

// handleWithTimeout lets a request wait until the earlier of the client's deadline and
// RequestTimeout. Without a quorum the client should ask another member, however long it is
// prepared to wait.
func (a *API) handleWithTimeout(ctx context.Context, begun time.Time, req any, handle grpc.UnaryHandler) (any, error) {
	end := begun.Add(a.cfg.RequestTimeout)
	d, hasDeadline := ctx.Deadline()
	if hasDeadline && !d.After(end) {
		return handle(ctx, req)
	}
	late := newLazyContext(ctx, end)
	late.failWithoutLeader = !hasDeadline && !a.cfg.WaitForLeader
	defer late.stop()
	resp, err := handle(late, req)
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		// The server's timeout has ended the request, not the client's deadline. Clients repeat reads after
		// etcd's error for that.
		err = rpctypes.ErrGRPCTimeout
	}
	return resp, err
}

// interceptWaiting is interceptUnary for WaitingMethods, without limits.
func (a *API) interceptWaiting(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, a.recoveredError(info.FullMethod, p)
		}
	}()
	if a.node.Leader() == 0 && requiresLeader(ctx) {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	return handle(ctx, req)
}

// interceptStream is interceptUnary for streams, without limits. On a stream of service Fast each
// request is checked for a leader, not the stream.
func (a *API) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.recoveredError(info.FullMethod, p)
		}
	}()
	if info.FullMethod == fastwire.Method || !requiresLeader(ss.Context()) {
		return streamError(ss.Context(), handle(srv, ss))
	}
	return a.handleWhileLed(ss, func(ss grpc.ServerStream) error { return handle(srv, ss) })
}

// errStopping ends the streams of a member that stops. It is not one of etcd's errors:
// KeepAliveOnce of clientv3 retries after Unavailable, but not after an error that clientv3
// knows, such as "etcdserver: server stopped".
var errStopping = status.Error(codes.Unavailable, "kvnode: the member is stopping")

// streamError returns the error that ends a stream. If the server has ended the context, its
// reason replaces the handler's Canceled: clients retry at another member after Unavailable, and
// give up after Canceled.
func streamError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.Canceled) || status.Code(clientError(err)) != codes.Canceled {
		return err
	}
	if errors.Is(cause, rpctypes.ErrGRPCStopped) {
		return errStopping
	}
	return clientError(cause)
}

// recoveredError logs a panic of method and returns the error for the client.
func (a *API) recoveredError(method string, p any) error {
	stack := debug.Stack() // of the panic
	a.logLimit.Do(func() {
		a.cfg.Logger.Error("request panicked", "method", method, "panic", p, "stack", string(stack))
	})
	return status.Errorf(codes.Internal, "kvnode: %s failed with an internal error; see the member's log", method)
}

// lazyContext is a context.WithDeadlineCause for requests that rarely wait. It creates its timer,
// and allocates a second time, on the first call of Done. Its cause is kvnode.ErrTimeout, like
// that of the node's own deadline.
type lazyContext struct {
	context.Context   // of the request
	deadline          time.Time
	failWithoutLeader bool // what Value returns for kvnode.FailWithoutLeader

	mu struct {
		sync.Mutex
		inner  context.Context // nil until the first call of Done
		cancel context.CancelFunc
	}
}

func newLazyContext(parent context.Context, deadline time.Time) *lazyContext {
	return &lazyContext{Context: parent, deadline: deadline}
}

// Deadline implements context.Context.
func (c *lazyContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *lazyContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.inner == nil {
		c.mu.inner, c.mu.cancel = context.WithDeadlineCause(c.Context, c.deadline, kvnode.ErrTimeout)
	}
	return c.mu.inner.Done()
}

// Err implements context.Context.
func (c *lazyContext) Err() error {
	if inner := c.timed(); inner != nil {
		return inner.Err()
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	if time.Now().Before(c.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements context.Context. It passes keys on to inner, so that package context finds the
// context that Done belongs to and starts no goroutine for derived contexts.
func (c *lazyContext) Value(key any) any {
	if _, ok := key.(kvnode.FailWithoutLeader); ok {
		if c.failWithoutLeader {
			return true
		}
		return nil
	}
	if inner := c.timed(); inner != nil {
		return inner.Value(key)
	}
	return c.Context.Value(key)
}

// clientContext returns the client's context if ctx is a lazyContext. Once a read is permitted,
// only the client's deadline limits it: RequestTimeout sends clients to another member, which would not
// be faster.
func clientContext(ctx context.Context) context.Context {
	if late, ok := ctx.(*lazyContext); ok {
		return late.Context
	}
	return ctx
}

func (c *lazyContext) timed() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.inner
}

// stop stops the timer, if there is one. The channel of a later call of Done closes with the request.
func (c *lazyContext) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.cancel != nil {
		c.mu.cancel()
	}
}

// noLeaderTimeouts is the number of election timeouts for which a stream that requires a leader continues
// without one. It is etcd's value. Most elections take less, so most streams survive them.
const noLeaderTimeouts = 3

// requiresLeader reports whether the client has used clientv3.WithRequireLeader.
func requiresLeader(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}

// StreamWithContext returns ss with another context.
func StreamWithContext(ctx context.Context, ss grpc.ServerStream) grpc.ServerStream {
	return streamWithContext{ss, ctx}
}

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s streamWithContext) Context() context.Context { return s.ctx }

// handleWhileLed runs handle on a stream. The stream's context ends with ErrGRPCNoLeader after
// noLeaderTimeouts without a leader. A handler that blocks in RecvMsg must also wait for the
// context.
func (a *API) handleWhileLed(ss grpc.ServerStream, handle func(grpc.ServerStream) error) error {
	if a.node.Leader() == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if a.leaderLost(ctx) {
			cancel(rpctypes.ErrGRPCNoLeader)
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	return streamError(ctx, handle(StreamWithContext(ctx, ss)))
}

// leaderLost returns true after noLeaderTimeouts without a leader, or false when ctx ends.
func (a *API) leaderLost(ctx context.Context) bool {
	var timeout <-chan time.Time // runs while there is no leader
	for {
		// Fetch the channel before reading the leader, or a change in between is missed.
		changed := a.node.LeaderChanged()
		switch {
		case a.node.Leader() != 0:
			timeout = nil
		case timeout == nil:
			timeout = time.After(noLeaderTimeouts * a.cfg.ElectionTimeout)
		}
		select {
		case <-changed:
		case <-timeout:
			if a.node.Leader() == 0 {
				return true
			}
			timeout = nil
		case <-ctx.Done():
			return false
		}
	}
}
