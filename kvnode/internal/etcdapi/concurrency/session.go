package concurrency

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// revokeTime bounds the revocation of a TTL lease that would run out anyway.
// Longer: without a leader callers learn later that their wait has failed.
const revokeTime = time.Second

// noLease is for sessions that put nothing: no TTL lease has this ID.
const noLease = -1

// session returns a session over a TTL lease, a new one if it is 0. Its caller
// keeps the TTL lease alive.
func (s *Services) session(ctx context.Context, lease int64) (*concurrency.Session, error) {
	return newSession(ctx, s.client, lease)
}

func newSession(ctx context.Context, client *clientv3.Client, lease int64) (*concurrency.Session, error) {
	session, err := concurrency.NewSession(client,
		concurrency.WithLease(clientv3.LeaseID(lease)), concurrency.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	session.Orphan()
	return session, nil
}

// abandon revokes the TTL lease of a session that nobody will hear of, because
// its wait has failed. One that the client gave belongs to the client.
func (s *Services) abandon(session *concurrency.Session, given int64) {
	if given != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.client.Ctx(), revokeTime)
	defer cancel()
	_, _ = s.client.Revoke(ctx, session.Lease())
}

// waiting returns a context that ends with the member too.
func (s *Services) waiting(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stopping, func() { cancel(rpctypes.ErrGRPCStopped) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// clientError returns what a client is told of err. What etcd's client returns is
// Unknown to gRPC, with etcd's text, and so it is in etcd.
func clientError(ctx context.Context, err error) error {
	lost, isLost := errors.AsType[lostError](context.Cause(ctx))
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), rpctypes.ErrGRPCStopped):
		return rpctypes.ErrGRPCStopped
	case isLost:
		return lost.error
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok && e.Code() == codes.Unavailable {
		return status.Error(e.Code(), e.Error())
	}
	return err
}
