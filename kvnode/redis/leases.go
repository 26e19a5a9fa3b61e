package redis

import (
	"context"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// revokers limits the revocations under way.
const revokers = 32

// leases grants the TTL leases of keys and revokes those that no key needs any more.
type leases struct {
	s     *Server
	slots chan struct{}
	tasks sync.WaitGroup

	mu sync.Mutex
	// owned are the leases of this gateway with their ends. Another client's lease may have other keys,
	// and its session, so the gateway does not revoke it.
	owned map[clientv3.LeaseID]time.Time
	prune int // size of owned at which the ended ones go
	// pruned is when they went. At the limit of owned, they go each pruneInterval.
	pruned time.Time
}

const pruneInterval = 10 * time.Second

func (l *leases) init(s *Server) {
	l.s, l.owned, l.prune, l.slots = s, make(map[clientv3.LeaseID]time.Time), 1024, make(chan struct{}, revokers)
}

// grant grants a TTL lease for a key.
func (l *leases) grant(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	got, err := l.s.cfg.Lease.Grant(ctx, ttl)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	full := len(l.owned) >= l.s.limits.leases
	if len(l.owned) >= l.prune || full && now.Sub(l.pruned) >= pruneInterval {
		for id, end := range l.owned {
			if now.After(end) {
				delete(l.owned, id)
			}
		}
		l.prune, l.pruned = max(1024, 2*len(l.owned)), now
	}
	if len(l.owned) < l.s.limits.leases {
		l.owned[got.ID] = now.Add(time.Duration(min(got.TTL, math.MaxInt32)) * time.Second)
	} else {
		l.leave(exceeds("TTL leases to revoke", len(l.owned)+1, l.s.limits.leases), got.ID)
	}
	return got.ID, nil
}

// revoke revokes leases in the background if this gateway has granted them. They hold no key, so nothing
// depends on it: what is not revoked ends at its time. With too many revocations under way, it waits.
func (l *leases) revoke(ctx context.Context, ids ...clientv3.LeaseID) {
	for _, id := range ids {
		l.mu.Lock()
		_, owned := l.owned[id]
		delete(l.owned, id)
		l.mu.Unlock()
		if !owned {
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
			if _, err := l.s.cfg.Lease.Revoke(ctx, id); err != nil {
				l.leave(err, id)
			}
		})
	}
}

// leave counts leases that end at their time, as no key has them as far as the gateway knows.
func (l *leases) leave(why error, ids ...clientv3.LeaseID) {
	if len(ids) == 0 {
		return
	}
	l.s.metrics.unrevoked.Add(float64(len(ids)))
	l.s.logLimit.Do(func() {
		l.s.cfg.Log.Warn("a TTL lease is not revoked, it ends at its time", "lease", int64(ids[0]), "error", why)
	})
}
