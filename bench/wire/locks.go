package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/bench/load"
)

// ErrNoTTLLeases says that locks cannot be measured.
var ErrNoTTLLeases = errors.New("wire: the endpoint has no TTL leases, which locks of clientv3/concurrency need")

// lockTTL is in seconds; a session renews it by itself.
const lockTTL = 10

// Lockers are clients that take locks.
type Lockers struct {
	clients  []*clientv3.Client
	sessions []*concurrency.Session
	keys     []string
	shared   bool
}

// NewLockers connects n clients, each with a session of its own. With shared all
// compete for one lock; otherwise each has its own.
func NewLockers(ctx context.Context, endpoints []string, n int, shared bool) (*Lockers, error) {
	l := &Lockers{shared: shared}
	for i := range n {
		if err := l.add(ctx, endpoints, i); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

func (l *Lockers) add(ctx context.Context, endpoints []string, i int) error {
	c, err := newClient(endpoints...)
	if err != nil {
		return err
	}
	l.clients = append(l.clients, c)
	// Asked by hand first: a session would only say that it is orphaned.
	grant, err := c.Grant(ctx, lockTTL)
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: %v answers: %w", ErrNoTTLLeases, endpoints, err)
	}
	if err != nil {
		return fmt.Errorf("grant a TTL lease: %w", err)
	}
	s, err := concurrency.NewSession(c, concurrency.WithLease(grant.ID))
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	l.sessions = append(l.sessions, s)
	key := "/locks/shared/"
	if !l.shared {
		key = fmt.Sprintf("/locks/%d/", i)
	}
	l.keys = append(l.keys, key)
	return nil
}

// Close ends the sessions.
func (l *Lockers) Close() error {
	var errs []error
	for _, s := range l.sessions {
		errs = append(errs, s.Close())
	}
	for _, c := range l.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// LockResult is what taking and giving back has come to.
type LockResult struct {
	Elapsed          time.Duration
	Acquire, Release *load.Tally
	// Overlaps counts acquisitions whose token is not above that of an earlier
	// holder: two clients held one lock, or its fencing is broken.
	Overlaps int64
}

// Measure lets each client take its lock and give it back, again and again.
func (l *Lockers) Measure(ctx context.Context, d time.Duration) *LockResult {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	r := &LockResult{Acquire: load.NewTally(), Release: load.NewTally()}
	var mu sync.Mutex // of r
	var wg sync.WaitGroup
	floor := load.NewFloor(len(l.keys))
	begin := time.Now()
	for i := range l.sessions {
		key := i
		if l.shared {
			key = 0
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				l.once(ctx, i, func() uint64 { return floor.At(key) }, func(token uint64) { floor.Raise(key, token) }, &mu, r)
			}
		})
	}
	wg.Wait()
	r.Elapsed = time.Since(begin)
	return r
}

// once takes and gives back the lock of client i.
func (l *Lockers) once(ctx context.Context, i int, floor func() uint64, raise func(uint64), mu *sync.Mutex, r *LockResult) {
	m := concurrency.NewMutex(l.sessions[i], l.keys[i])
	begin := time.Now()
	err := m.Lock(ctx)
	took := time.Since(begin)
	if ctx.Err() != nil { // the end of the measurement is no failure
		l.abandon(m, err)
		return
	}
	if err != nil {
		mu.Lock()
		defer mu.Unlock()
		r.Acquire.Fail(err)
		return
	}
	token := uint64(m.Header().GetRevision())
	overlap := token <= floor()
	raise(token)
	begin = time.Now()
	err = m.Unlock(context.WithoutCancel(ctx))
	gave := time.Since(begin)
	mu.Lock()
	defer mu.Unlock()
	r.Acquire.Record(took)
	if overlap {
		r.Overlaps++
	}
	if err != nil {
		r.Release.Fail(err)
		return
	}
	r.Release.Record(gave)
}

// abandon gives a lock back that was taken too late.
func (*Lockers) abandon(m *concurrency.Mutex, err error) {
	if err == nil {
		_ = m.Unlock(context.Background()) // the session's end does it otherwise
	}
}
