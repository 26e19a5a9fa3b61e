package redis

import (
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// maxTTL is etcd's limit.
	maxTTL = 9_000_000_000
	// past is the TTL of an expiry that lies in the past.
	past = -2
)

// seconds converts a number of units to whole seconds, rounded up. With at, the number is a Unix time. If the
// expiry is not in the future, seconds returns past.
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
			s.rounded.Do(func() {
				s.cfg.Log.Info("an expiry is rounded up to whole seconds; later ones are not logged", "expiry", text+"ms", "seconds", sec)
			})
		}
	}
	if sec > maxTTL {
		return 0, errExpiry
	}
	return sec, nil
}

// positive is seconds, but rejects a number of zero or less.
func (s *Server) positive(text string, unit time.Duration, at bool) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n <= 0 {
		return 0, errExpiry
	}
	return s.seconds(text, unit, at)
}

// expire sets the expiry of a key. A time in the past removes it.
func expire(unit time.Duration, at bool) func(t *tx, args []string) any {
	return func(t *tx, args []string) any {
		e := t.keys[args[1]]
		sec, err := t.s.seconds(args[2], unit, at)
		switch {
		case err != nil:
			return err
		case !e.exists:
			return int64(0)
		case sec == past:
			e.remove()
		default:
			e.put(e.value, sec)
		}
		return int64(1)
	}
}

// ttl returns the time until a key ends: -1 without expiry, -2 without key.
func ttl(unit time.Duration) func(t *tx, args []string) any {
	return func(t *tx, args []string) any {
		e := t.keys[args[1]]
		left := e.ttl // of an earlier command in this transaction
		switch {
		case !e.exists:
			return int64(-2)
		case !e.expires():
			return int64(-1)
		case !e.changed || e.ttl == keepTTL:
			got, err := t.s.cfg.Lease.LeaseTimeToLive(t.ctx, &pb.LeaseTimeToLiveRequest{ID: int64(e.lease)})
			if err != nil {
				t.err = err
				return nil
			}
			left = got.GetTTL()
			t.stale = t.stale || left < 0 // the lease has ended since the key was read
		}
		return left * int64(time.Second/unit)
	}
}

func persist(t *tx, args []string) any {
	e := t.keys[args[1]]
	if !e.expires() {
		return int64(0)
	}
	e.put(e.value, 0)
	return int64(1)
}

// expires reports whether the key has an expiry.
func (e *entry) expires() bool {
	if e.changed && e.ttl != keepTTL {
		return e.exists && e.ttl > 0
	}
	return e.exists && e.lease != 0
}
