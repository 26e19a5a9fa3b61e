package etcdapi

import (
	"context"
	"runtime/debug"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// interceptUnary bounds a request in number and time, refuses it if it requires
// a leader and there is none, and survives it.
func (a *API) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	if n := a.inFlight.Add(1); n > int64(a.cfg.MaxInFlight) {
		a.inFlight.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "kvnode: too many requests: %d are under way, which is the limit", a.cfg.MaxInFlight)
	}
	defer func() {
		a.inFlight.Add(-1)
		if p := recover(); p != nil {
			resp, err = nil, a.recovered(info.FullMethod, p)
		}
	}()
	if a.node.Leader() == 0 && requiresLeader(ctx) {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	if _, ok := ctx.Deadline(); ok {
		return handle(ctx, req)
	}
	late := newLateContext(ctx, time.Now().Add(a.cfg.RequestTimeout))
	defer late.release()
	resp, err = handle(late, req)
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		// The time was ours, not the client's: etcd calls that a timeout, and
		// clients repeat reads that met one.
		err = rpctypes.ErrGRPCTimeout
	}
	return resp, err
}

// interceptStream does the same for a stream, except that it has no bounds.
func (a *API) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.recovered(info.FullMethod, p)
		}
	}()
	if !requiresLeader(ss.Context()) {
		return handle(srv, ss)
	}
	return a.whileLed(ss, func(led grpc.ServerStream) error { return handle(srv, led) })
}

// recovered logs a panic under method and returns what the client is told.
func (a *API) recovered(method string, p any) error {
	a.cfg.Logger.Error("request panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
	return status.Errorf(codes.Internal, "kvnode: %s failed on an internal error, which the member has logged", method)
}
