package redis

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// keyLocks are locks by key, so that transactions of one gateway do not fail each other's compares.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock // held or waited for
}

type keyLock struct {
	held  chan struct{} // has an element while the lock is held
	users int           // its holder and the callers that wait
}

// lock locks a key, and reports whether another caller had it.
func (l *keyLocks) lock(ctx context.Context, key string) (waited bool, err error) {
	l.mu.Lock()
	k := l.locks[key]
	if k == nil {
		if l.locks == nil {
			l.locks = make(map[string]*keyLock)
		}
		k = &keyLock{held: make(chan struct{}, 1)}
		l.locks[key] = k
	}
	waited = k.users > 0
	k.users++
	l.mu.Unlock()
	select {
	case k.held <- struct{}{}:
		return waited, nil
	case <-ctx.Done():
		l.leave(key, k)
		return waited, ctx.Err()
	}
}

func (l *keyLocks) unlock(key string) {
	l.mu.Lock()
	k := l.locks[key]
	l.mu.Unlock()
	<-k.held
	l.leave(key, k)
}

func (l *keyLocks) leave(key string, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.locks, key)
	}
}

// lockKeys locks the keys of a transaction that writes, unless they are locked. It reports whether the keys may have
// changed meanwhile. A blind write has no compares, so it only waits for the transactions before it.
func (c *conn) lockKeys(t *tx) (changed bool, err error) {
	if len(c.locked) > 0 || !t.writes() {
		return false, nil
	}
	for _, k := range slices.Sorted(maps.Keys(t.keys)) { // in one order, so that no two wait for each other
		waited, err := c.s.locks.lock(t.ctx, k)
		if err != nil {
			return false, notWrittenError{err}
		}
		c.locked = append(c.locked, k)
		changed = changed || waited
	}
	if !slices.ContainsFunc(t.order, func(k string) bool { return t.keys[k].need < needsNothing }) {
		c.unlockKeys()
		return false, nil
	}
	return changed, nil
}

func (c *conn) unlockKeys() {
	for _, k := range c.locked {
		c.s.locks.unlock(k)
	}
	c.locked = nil
}
