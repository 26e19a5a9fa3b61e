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

// interceptUnary bounds a request in number and time, refuses it if it requires
// a leader and there is none, and survives it.
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
	// Its work is done: while its reply waits for clients that take nothing, it must
	// not keep out others. That has a bound of its own.
	return a.reserveReply(ctx, resp)
}

// handleBounded handles a request that has begun just now, unless too many are under way.
func (a *API) handleBounded(ctx context.Context, begun time.Time, req any, method string, handle grpc.UnaryHandler) (any, error) {
	defer a.inFlight.Add(-1)
	under := a.inFlight.Add(1)
	if err := a.checkAdmission(under, a.node.Leader() == 0 && requiresLeader(ctx)); err != nil {
		return nil, err
	}
	if method == pb.Maintenance_Defragment_FullMethodName {
		// It waits for no other member, and takes as long as there is to copy.
		return handle(ctx, req)
	}
	return a.handleWithTimeout(ctx, begun, req, handle)
}

// checkAdmission refuses a request if so many are too many under way, with it, or if it requires a
// leader and there is none.
func (a *API) checkAdmission(under int64, requires bool) error {
	if under > int64(a.cfg.MaxInFlight) {
		return status.Errorf(codes.ResourceExhausted, "kvnode: too many requests: %d are under way, which is the limit", a.cfg.MaxInFlight)
	}
	if requires && a.node.Leader() == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	return nil
}

// handleWithTimeout lets a request, which has begun just now, wait for RequestTimeout, or until the client's deadline
// if that comes first. However long a client would wait: where there is no
// quorum it had better learn so and ask another member.
func (a *API) handleWithTimeout(ctx context.Context, begun time.Time, req any, handle grpc.UnaryHandler) (any, error) {
	end := begun.Add(a.cfg.RequestTimeout)
	d, decided := ctx.Deadline()
	if decided && !d.After(end) {
		return handle(ctx, req)
	}
	late := newLazyContext(ctx, end)
	late.noClientDeadline = !decided && !a.cfg.WaitForLeader
	defer late.stop()
	resp, err := handle(late, req)
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		// The time was ours, not the client's: etcd calls that a timeout, and
		// clients repeat reads that met one.
		err = rpctypes.ErrGRPCTimeout
	}
	return resp, err
}

// interceptWaiting does the same for a request that waits for other clients,
// except that it has no bounds.
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

// interceptStream does the same for a stream, except that it has no bounds. On one of
// service Fast each request that requires a leader is refused as a call is.
func (a *API) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.recoveredError(info.FullMethod, p)
		}
	}()
	if info.FullMethod == fastwire.Method || !requiresLeader(ss.Context()) {
		return streamError(ss.Context(), handle(srv, ss))
	}
	return a.handleWhileLed(ss, func(led grpc.ServerStream) error { return handle(srv, led) })
}

// errStopping ends a stream whose member stops. It is none of etcd's errors: KeepAliveOnce of
// clientv3 tries again after Unavailable, but not after an error that clientv3 knows, such as
// "etcdserver: server stopped".
var errStopping = status.Error(codes.Unavailable, "kvnode: the member stops")

// streamError returns what a stream ends with. If the server has ended its context, the handler's
// Canceled is replaced by the server's reason, for example that the member stops: clients try
// again at another member after Unavailable, and give up after Canceled.
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

// recoveredError logs a panic under method and returns what the client is told.
func (a *API) recoveredError(method string, p any) error {
	stack := debug.Stack() // of the panic
	a.logLimit.Do(func() {
		a.cfg.Logger.Error("request panicked", "method", method, "panic", p, "stack", string(stack))
	})
	return status.Errorf(codes.Internal, "kvnode: %s failed on an internal error, which the member has logged", method)
}

// lazyContext is context.WithDeadlineCause for requests that will hardly ever
// wait: there is no timer, and no second allocation, until somebody asks for
// Done. Its cause is kvnode.ErrTimeout, as that of the node's own deadline.
type lazyContext struct {
	context.Context // the request's
	deadline        time.Time
	noClientDeadline       bool // the client has not said for how long it waits

	mu struct {
		sync.Mutex
		inner  context.Context // nil until Done was asked for
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

// Value implements context.Context. Package context finds by it the context
// whose Done this is, and needs no goroutine for contexts derived from it.
func (c *lazyContext) Value(key any) any {
	if _, ok := key.(kvnode.FailWithoutLeader); ok {
		if c.noClientDeadline {
			return true
		}
		return nil
	}
	if inner := c.timed(); inner != nil {
		return inner.Value(key)
	}
	return c.Context.Value(key)
}

// clientContext returns the client's context if ctx is a lateContext of it. It is
// for what a member does by itself once it has been permitted: that takes as long
// as it takes, or as the client waits, and no other member would be faster.
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

// stop stops the timer if there is one. A Done asked for afterwards ends
// with the request.
func (c *lazyContext) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.cancel != nil {
		c.mu.cancel()
	}
}

// noLeaderTimeouts is for how many election timeouts a stream that requires a
// leader goes on without one. Etcd waits as long: to connect anew costs more
// than to refuse a request, and most elections end before.
const noLeaderTimeouts = 3

// requiresLeader reports whether the request is one of clientv3.WithRequireLeader.
func requiresLeader(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}

// streamWithContext is a stream that ends when the leader is lost.
type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns one that is cancelled when the leader is lost. A handler that
// waits for its client with RecvMsg must wait for it as well.
func (s streamWithContext) Context() context.Context { return s.ctx }

// handleWhileLed runs handle on a stream whose context ends when there was no leader
// for too long; then the stream's error is NoLeader.
func (a *API) handleWhileLed(ss grpc.ServerStream, handle func(grpc.ServerStream) error) error {
	if a.node.Leader() == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	ctx, cut := context.WithCancelCause(ss.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if a.leaderLost(ctx) {
			cut(rpctypes.ErrGRPCNoLeader)
		}
	}()
	defer func() {
		cut(nil)
		<-watched
	}()
	return streamError(ctx, handle(streamWithContext{ss, ctx}))
}

// leaderLost returns true once there was no leader for too long, or false when
// ctx ends first.
func (a *API) leaderLost(ctx context.Context) bool {
	var patience <-chan time.Time // runs while there is no leader
	for {
		// The channel is fetched before the leader is looked at, or a change in
		// between would be missed.
		changed := a.node.LeaderChanged()
		switch {
		case a.node.Leader() != 0:
			patience = nil
		case patience == nil:
			patience = time.After(noLeaderTimeouts * a.cfg.ElectionTimeout)
		}
		select {
		case <-changed:
		case <-patience:
			if a.node.Leader() == 0 {
				return true
			}
			patience = nil
		case <-ctx.Done():
			return false
		}
	}
}
