package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/leaderlease/fence"
)

// Keys of the contenders: the keys of the lock, and the key that only the lock's holder
// writes, with its token as the value.
const (
	LockName   = "lock"
	GuardedKey = "guarded"
)

const (
	lockTTL     = 2                // seconds
	lockTimeout = 15 * time.Second // of one acquisition
)

// Locks contend for one lock with clientv3/concurrency. Each holder writes, with
// the create revision of its lock key as the fencing token, to a key inside the
// store and to a resource outside. Some holders are late: they lose their TTL lease and write
// nevertheless.
type Locks struct {
	conns []*clientv3.Client
	gate  *fence.Gate // of the resource outside
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu struct {
		sync.Mutex
		holder   map[uint64]string // by token
		acquired int
		refused  int // late writes
		errs     []error
	}
}

// StartLocks starts contenders, each with a connection to one member.
func StartLocks(ctx context.Context, members []*testcluster.Member, contenders int, seed uint64) (*Locks, error) {
	l := &Locks{gate: fence.NewGate(fence.Token{})}
	l.mu.holder = make(map[uint64]string)
	for i := range contenders {
		conn, err := members[i%len(members)].Client()
		if err != nil {
			return nil, errors.Join(err, kvclient.Close(l.conns))
		}
		l.conns = append(l.conns, conn)
	}
	ctx, l.stop = context.WithCancel(ctx)
	for i, conn := range l.conns {
		c := &contender{l: l, conn: conn, random: rand.New(rand.NewPCG(seed, uint64(1000+i))), name: fmt.Sprintf("contender %d", i)}
		l.wg.Go(func() { c.run(ctx) })
	}
	return l, nil
}

// Stop ends the contenders. It returns how often the lock was acquired, how often
// a late write was refused, and the first violation.
func (l *Locks) Stop() (acquired, refused int, err error) {
	l.stop()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.acquired, l.mu.refused, errors.Join(append(l.mu.errs, kvclient.Close(l.conns))...)
}

func (l *Locks) broken(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.errs = append(l.mu.errs, fmt.Errorf(format, args...))
}

// contender is a client that wants the lock.
type contender struct {
	l      *Locks
	conn   *clientv3.Client
	random *rand.Rand
	name   string
	turns  int
}

func (c *contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.turns++
		// An error means that a member was killed. The tokens decide whether the lock was
		// correct.
		_ = c.turn(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(c.random.Int64N(int64(50 * time.Millisecond)))):
		}
	}
}

// turn acquires the lock, writes under it, and releases it.
func (c *contender) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	s, err := concurrency.NewSession(c.conn, concurrency.WithTTL(lockTTL), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // its lease ends in any case
	m := concurrency.NewMutex(s, LockName)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	if c.random.IntN(4) == 0 {
		c.lose(ctx, s)
	}
	c.write(ctx, m.IsOwner())
	return m.Unlock(ctx)
}

// lose ends the holder's lease while it works: it stops the keep-alives, or revokes the lease.
func (c *contender) lose(ctx context.Context, s *concurrency.Session) {
	s.Orphan()
	if c.random.IntN(2) == 0 {
		_, _ = c.conn.Revoke(ctx, s.Lease()) // if it fails, the holder is in time
		return
	}
	sleep(ctx, lockTTL*time.Second+time.Duration(c.random.Int64N(int64(2*time.Second))))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// write writes to the outside resource, and to the store before and after that.
func (c *contender) write(ctx context.Context, owner clientv3.Cmp) {
	token := fence.Token{Index: uint64(Token(owner))}
	name := fmt.Sprintf("%s, turn %d", c.name, c.turns)
	before, errBefore := c.guarded(ctx, owner)
	err := c.l.gate.Do(token, func() error { return c.l.admit(token.Index, name) })
	after, errAfter := c.guarded(ctx, owner)
	c.l.mu.Lock()
	if errBefore == nil && !before {
		c.l.mu.refused++
	}
	c.l.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, fence.ErrStale):
		c.l.broken("%w", err)
	case err != nil && errAfter == nil && after:
		c.l.broken("%s holds the lock with token %d, after a holder with a newer one: %w", name, token.Index, err)
	case errBefore == nil && !before && errAfter == nil && after:
		c.l.broken("%s with token %d has lost the lock, and holds it again", name, token.Index)
	}
}

// admit records the token of a holder. It admits one at a time.
func (l *Locks) admit(token uint64, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.mu.holder[token]; ok && other != name {
		return fmt.Errorf("%s and %s hold the same token %d", other, name, token)
	}
	l.mu.holder[token] = name
	l.mu.acquired++
	return nil
}

// guarded writes the token to the key in the store if the lock is still held.
func (c *contender) guarded(ctx context.Context, owner clientv3.Cmp) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	resp, err := c.conn.Txn(ctx).If(owner).Then(clientv3.OpPut(GuardedKey, strconv.FormatInt(Token(owner), 10))).Commit()
	return err == nil && resp.Succeeded, err
}

// Token returns the fencing token of a mutex: the create revision that its IsOwner
// compares.
func Token(owner clientv3.Cmp) int64 {
	return owner.GetCompare().GetCreateRevision()
}

// JudgeLocks replays a history. Each writer of the guarded key must hold the lock at that
// time, which means that it is the oldest contender, and tokens never decrease.
func JudgeLocks(history []Event) error {
	wanting := make(map[string]int64) // lock keys with their create revisions
	highest := int64(0)
	for _, e := range history {
		switch {
		case strings.HasPrefix(e.Key, LockName+"/") && e.Deleted:
			delete(wanting, e.Key)
		case strings.HasPrefix(e.Key, LockName+"/"):
			wanting[e.Key] = e.Create
		case e.Key == GuardedKey:
			token, err := strconv.ParseInt(e.Value, 10, 64)
			if err != nil {
				return err
			}
			for key, other := range wanting {
				if other < token {
					return fmt.Errorf("at revision %d token %d writes, while %s with token %d holds the lock", e.Revision, token, key, other)
				}
			}
			if token < highest {
				return fmt.Errorf("at revision %d token %d writes, after token %d", e.Revision, token, highest)
			}
			highest = token
		}
	}
	return nil
}
