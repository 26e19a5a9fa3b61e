package redis

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maxTTL is etcd's limit.
	maxTTL = 9_000_000_000
	// past is the TTL of an expiry that lies in the past.
	past = -2
	// maxOwned limits the leases that the gateway remembers to revoke. Others end at their time.
	maxOwned = 1 << 20
	// revokers limits the revocations under way.
	revokers = 32
)

// leases grants the TTL leases of keys and revokes those that no key needs any more.
type leases struct {
	s     *Server
	slots chan struct{}
	tasks sync.WaitGroup
	once  sync.Once

	mu sync.Mutex
	// owned are the leases of this gateway with their ends. Another client's lease may have other keys,
	// and its session, so the gateway does not revoke it.
	owned map[clientv3.LeaseID]time.Time
	prune int // size of owned at which the ended ones go
}

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
	if len(l.owned) >= l.prune {
		for id, end := range l.owned {
			if now.After(end) {
				delete(l.owned, id)
			}
		}
		l.prune = max(1024, 2*len(l.owned))
	}
	if len(l.owned) < maxOwned {
		l.owned[got.ID] = now.Add(time.Duration(min(got.TTL, math.MaxInt32)) * time.Second)
	}
	return got.ID, nil
}

// revoke revokes leases in the background if this gateway has granted them. They hold no key, so nothing
// depends on it: a revocation that fails or is dropped leaves an empty lease until its end.
func (l *leases) revoke(ids ...clientv3.LeaseID) {
	for _, id := range ids {
		l.mu.Lock()
		_, owned := l.owned[id]
		delete(l.owned, id)
		l.mu.Unlock()
		if !owned || l.s.ctx.Err() != nil {
			continue
		}
		select {
		case l.slots <- struct{}{}:
		default:
			l.s.metrics.unrevoked.Inc()
			continue
		}
		l.tasks.Go(func() {
			defer func() { <-l.slots }()
			ctx, cancel := context.WithTimeout(l.s.ctx, l.s.cfg.Timeout)
			defer cancel()
			if _, err := l.s.cfg.Lease.Revoke(ctx, id); err != nil {
				l.s.metrics.unrevoked.Inc()
			}
		})
	}
}

func (l *leases) wait() { l.tasks.Wait() }

// remaining returns the seconds until a key ends, as TTL does: -1 without expiry, -2 without key.
func (t *tx) remaining(e *entry) (int64, error) {
	switch {
	case !e.exists:
		return -2, nil
	case e.changed && e.ttl != keepTTL:
		if e.ttl == 0 {
			return -1, nil
		}
		return e.ttl, nil
	case e.lease == 0:
		return -1, nil
	}
	got, err := t.s.cfg.Lease.TimeToLive(t.ctx, e.lease)
	if err != nil {
		return 0, err
	}
	t.stale = t.stale || got.TTL < 0 // the lease has ended since the key was read
	return got.TTL, nil
}

// seconds converts an expiry to whole seconds, rounded up. unit is that of the number; at means a point in
// Unix time. An expiry that lies in the past is past.
func (s *Server) seconds(text string, unit time.Duration, at bool) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errInteger
	}
	perSecond := int64(time.Second / unit)
	if at && n > 0 {
		n -= time.Now().UnixMilli() * perSecond / 1000
	}
	if n <= 0 {
		return past, nil
	}
	sec := n / perSecond
	if n%perSecond != 0 {
		sec++
		if !at {
			s.leases.once.Do(func() {
				s.cfg.Log.Info("an expiry that is not whole seconds is rounded up, as for all that follow", "expiry", text+"ms", "seconds", sec)
			})
		}
	}
	if sec > maxTTL {
		return 0, errExpiry
	}
	return sec, nil
}

// ttl is seconds for an expiry that is set with a value, where zero and less are refused.
func (s *Server) ttl(text string, unit time.Duration, at bool) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n <= 0 {
		return 0, errExpiry
	}
	return s.seconds(text, unit, at)
}
