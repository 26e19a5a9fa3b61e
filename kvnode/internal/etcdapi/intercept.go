package etcdapi

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
			resp, err = nil, a.recovered(info.FullMethod, p)
		}
	}()
	begun := time.Now()
	resp, err = a.bounded(ctx, begun, req, info.FullMethod, handle)
	a.note(ctx, info.FullMethod, req, resp, err, time.Since(begun))
	if err != nil {
		return nil, noRBAC(info.FullMethod, err)
	}
	// Its work is done: while its reply waits for clients that take nothing, it must
	// not keep out others. That has a bound of its own.
	return a.weigh(ctx, resp)
}

// bounded handles a request that has begun just now, unless too many are under way.
func (a *API) bounded(ctx context.Context, begun time.Time, req any, method string, handle grpc.UnaryHandler) (any, error) {
	defer a.inFlight.Add(-1)
	under := a.inFlight.Add(1)
	if err := a.mayBegin(under, a.node.Leader() == 0 && requiresLeader(ctx)); err != nil {
		return nil, err
	}
	if method == pb.Maintenance_Defragment_FullMethodName {
		// It waits for no other member, and takes as long as there is to copy.
		return handle(ctx, req)
	}
	return a.inTime(ctx, begun, req, handle)
}

// mayBegin refuses a request if so many are too many under way, with it, or if it requires a
// leader and there is none.
func (a *API) mayBegin(under int64, requires bool) error {
	if under > int64(a.cfg.MaxInFlight) {
		return status.Errorf(codes.ResourceExhausted, "kvnode: too many requests: %d are under way, which is the limit", a.cfg.MaxInFlight)
	}
	if requires && a.node.Leader() == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	return nil
}

// inTime lets a request, which has begun just now, wait for RequestTimeout, or until the client's deadline
// if that comes first. However long a client would wait: where there is no
// quorum it had better learn so and ask another member.
func (a *API) inTime(ctx context.Context, begun time.Time, req any, handle grpc.UnaryHandler) (any, error) {
	end := begun.Add(a.cfg.RequestTimeout)
	d, decided := ctx.Deadline()
	if decided && !d.After(end) {
		return handle(ctx, req)
	}
	late := newLateContext(ctx, end)
	late.undecided = !decided && !a.cfg.WaitForLeader
	defer late.release()
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
			resp, err = nil, a.recovered(info.FullMethod, p)
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
			err = a.recovered(info.FullMethod, p)
		}
	}()
	if info.FullMethod == fastwire.Method || !requiresLeader(ss.Context()) {
		return streamError(ss.Context(), handle(srv, ss))
	}
	return a.whileLed(ss, func(led grpc.ServerStream) error { return handle(srv, led) })
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

// recovered logs a panic under method and returns what the client is told.
func (a *API) recovered(method string, p any) error {
	stack := debug.Stack() // of the panic
	a.complain.Do(func() {
		a.cfg.Logger.Error("request panicked", "method", method, "panic", p, "stack", string(stack))
	})
	return status.Errorf(codes.Internal, "kvnode: %s failed on an internal error, which the member has logged", method)
}
