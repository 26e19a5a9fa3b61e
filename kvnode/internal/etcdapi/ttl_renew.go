package etcdapi

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode"
)

// renewals renews a TTL lease, and waits for more if nobody else does: growing the
// stack of a new goroutine to what gRPC needs is a sixth of what a renewal costs.
func (k *keepAlives) renewals(id int64) {
	defer k.mu.running.Done()
	defer func() {
		<-k.slots
		if p := recover(); p != nil {
			k.fail(k.recovered(pb.Lease_LeaseKeepAlive_FullMethodName, p))
		}
	}()
	for more := true; more; {
		k.renew(id)
		select {
		case k.idle <- struct{}{}:
		default:
			return
		}
		select {
		case id, more = <-k.work:
		case <-k.ctx.Done():
			more = false
		}
		<-k.idle
	}
}

func (k *keepAlives) renew(id int64) {
	// The header is of before the renewal: a TTL lease that is revoked at its
	// revision was so after the renewal.
	resp := &pb.LeaseKeepAliveResponse{Header: k.header(), ID: id}
	var err error
	if resp.TTL, err = k.renewed(id); err != nil {
		k.fail(err)
		return
	}
	k.sending.Lock()
	defer k.sending.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	if err := k.stream.Send(resp); err != nil {
		k.fail(err)
	}
}

// renewed returns the TTL of a TTL lease that was renewed, here or by the leader.
func (k *keepAlives) renewed(id int64) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(k.ctx, k.cfg.RequestTimeout, kvnode.ErrTimeout)
	defer cancel()
	ttl, err := leaderWork[int64]{
		here: func(ctx context.Context) (int64, error) { return k.node.RenewTTL(ctx, id) },
		there: func(ctx context.Context, leader grpc.ClientConnInterface) (int64, error) {
			return k.elsewhere.renew(ctx, leader, id)
		},
		repeatable: true,
	}.do(ctx, k.API)
	switch {
	case errors.Is(err, rpctypes.ErrGRPCLeaseNotFound):
		return 0, nil
	case err != nil && errors.Is(context.Cause(ctx), kvnode.ErrTimeout) && k.node.Leader() != 0:
		return 0, rpctypes.ErrGRPCTimeout
	default:
		return ttl, err
	}
}
