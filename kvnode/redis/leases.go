package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// revokers limits the concurrent revocations, granters the concurrent grants of one transaction.
	revokers, granters = 32, 16
	// The ID of a gateway's lease is idPrefix, followed by idBits random bits. A gateway revokes only leases of
	// gateways, because a lease of another client may have other keys or a session.
	idBits, idPrefix = 39, 0x6b7672
)

// leases grants the TTL leases of keys and revokes those that no key needs any more.
type leases struct {
	s     *Server
	slots chan struct{}
	tasks sync.WaitGroup
}

// grant grants a TTL lease for each key. After an error, some are granted.
func (l *leases) grant(ctx context.Context, ttls []int64) ([]clientv3.LeaseID, error) {
	ids, errs := make([]clientv3.LeaseID, len(ttls)), make([]error, len(ttls))
	var all sync.WaitGroup
	slots := make(chan struct{}, granters)
	for i, ttl := range ttls {
		slots <- struct{}{}
		all.Go(func() {
			ids[i], errs[i] = l.grantOne(ctx, ttl)
			<-slots
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return ids, err
		}
	}
	return ids, nil
}

func (l *leases) grantOne(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	for {
		id := idPrefix<<idBits | rand.Int64N(1<<idBits)
		_, err := l.s.cfg.Lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
		if err = rpctypes.Error(err); !errors.Is(err, rpctypes.ErrLeaseExist) {
			return clientv3.LeaseID(id), err
		}
	}
}

// revoke revokes leases of gateways in the background. They hold no key, so a lease that is not revoked ends at
// its time without an effect. With too many concurrent revocations, revoke waits.
func (l *leases) revoke(ctx context.Context, ids ...clientv3.LeaseID) {
	for _, id := range ids {
		if id>>idBits != idPrefix {
			if id != 0 { // another client has granted it
				l.s.metrics.unrevoked.Inc()
			}
			continue
		}
		select {
		case l.slots <- struct{}{}:
		default:
			select {
			case l.slots <- struct{}{}:
			case <-ctx.Done():
				l.leave(ctx.Err(), id)
				continue
			}
		}
		l.tasks.Go(func() {
			defer func() { <-l.slots }()
			ctx, cancel := context.WithTimeout(l.s.ctx, l.s.cfg.Timeout)
			defer cancel()
			_, err := l.s.cfg.Lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(id)})
			if err = rpctypes.Error(err); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				l.leave(err, id)
			}
		})
	}
}

// leave counts leases that the gateway does not revoke. They end at their time.
func (l *leases) leave(why error, ids ...clientv3.LeaseID) {
	if len(ids) == 0 {
		return
	}
	l.s.metrics.unrevoked.Add(float64(len(ids)))
	l.s.logLimit.Do(func() {
		l.s.cfg.Log.Warn("a TTL lease is not revoked, it ends at its time", "lease", int64(ids[0]), "error", why)
	})
}
