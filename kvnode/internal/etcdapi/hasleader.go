package etcdapi

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// leaderlessTimeouts is for how many election timeouts a stream that requires a
// leader goes on without one. Etcd waits as long: to connect anew costs more
// than to refuse a request, and most elections end before.
const leaderlessTimeouts = 3

// requiresLeader reports whether the request is one of clientv3.WithRequireLeader.
func requiresLeader(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}

// ledStream is a stream that ends when the leader is lost.
type ledStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns one that is cancelled when the leader is lost. A handler that
// waits for its client with RecvMsg must wait for it as well.
func (s ledStream) Context() context.Context { return s.ctx }

// whileLed runs handle on a stream whose context ends when there was no leader
// for too long; then the stream's error is NoLeader.
func (a *API) whileLed(ss grpc.ServerStream, handle func(grpc.ServerStream) error) error {
	if a.node.Leader() == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	ctx, cut := context.WithCancelCause(ss.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if a.leaderless(ctx) {
			cut(rpctypes.ErrGRPCNoLeader)
		}
	}()
	defer func() {
		cut(nil)
		<-watched
	}()
	return streamError(ctx, handle(ledStream{ss, ctx}))
}

// leaderless returns true once there was no leader for too long, or false when
// ctx ends first.
func (a *API) leaderless(ctx context.Context) bool {
	var patience <-chan time.Time // runs while there is no leader
	for {
		// The channel is fetched before the leader is looked at, or a change in
		// between would be missed.
		changed := a.node.LeaderChanged()
		switch {
		case a.node.Leader() != 0:
			patience = nil
		case patience == nil:
			patience = time.After(leaderlessTimeouts * a.cfg.ElectionTimeout)
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
