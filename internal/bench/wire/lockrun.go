package wire

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaderlease/go/internal/bench/load"
)

// LockResult is what taking and giving back has come to.
type LockResult struct {
	Elapsed          time.Duration
	Acquire, Release *load.Tally
	// Overlaps counts acquisitions, those of the warm-up included, while another
	// client held the lock, or with a token that is not above that of every
	// earlier holder: locks do not exclude, or their fencing is broken.
	Overlaps int64
}

// Measure lets each client take its lock and give it back, again and again. Who
// waits for a lock at the end gives up, which is no failure.
func (l *Lockers) Measure(ctx context.Context, t Times) (*LockResult, error) {
	m := &lockRun{Lockers: l, acquire: newCounter(), release: newCounter(), locks: make([]tenure, len(l.keys))}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i := range l.sessions {
		wg.Go(func() { m.client(ctx, i) })
	}
	elapsed := m.window.pass(ctx, t)
	err := ctx.Err()
	cancel()
	wg.Wait()
	return &LockResult{Elapsed: elapsed, Acquire: m.acquire.tally, Release: m.release.tally, Overlaps: m.overlaps.Load()}, err
}

// lockRun is one measurement.
type lockRun struct {
	*Lockers
	window           window
	acquire, release *counter
	locks            []tenure // by lock
	overlaps         atomic.Int64
}

// tenure audits one lock.
type tenure struct {
	mu struct {
		sync.Mutex
		holders int
		token   uint64 // the greatest of all holders
	}
}

// begin reports whether the lock was nobody's, and the token new. A client whose
// release failed may find that it still holds the lock, with its old token.
func (t *tenure) begin(token, kept uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.holders++
	alone := t.mu.holders == 1
	fresh := token > t.mu.token || kept > 0 && token == kept && token == t.mu.token
	t.mu.token = max(t.mu.token, token)
	return alone && fresh
}

// end comes before the lock is given back: the next holder may know first.
func (t *tenure) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.holders--
}

// client takes and gives back until ctx ends.
func (m *lockRun) client(ctx context.Context, i int) {
	lock := &m.locks[i]
	if m.shared {
		lock = &m.locks[0]
	}
	var kept uint64 // the token of a release that failed
	for ctx.Err() == nil {
		kept = m.once(ctx, i, lock, kept)
	}
}

func (m *lockRun) once(ctx context.Context, i int, lock *tenure, kept uint64) uint64 {
	mutex := concurrency.NewMutex(m.sessions[i], m.keys[i])
	begin := time.Now()
	err := mutex.Lock(ctx)
	took := time.Since(begin)
	if err != nil {
		if ctx.Err() == nil { // otherwise it gave up
			m.acquire.note(&m.window, took, err)
		}
		return kept
	}
	m.acquire.note(&m.window, took, nil)
	token := tokenOf(mutex)
	if !lock.begin(token, kept) {
		m.overlaps.Add(1)
	}
	runtime.Gosched() // two holders at once get a chance to meet
	lock.end()
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	begin = time.Now()
	err = mutex.Unlock(release)
	m.release.note(&m.window, time.Since(begin), err)
	if err != nil {
		return token
	}
	return 0
}

// tokenOf returns the create revision of the holder's key.
func tokenOf(m *concurrency.Mutex) uint64 {
	owner := m.IsOwner()
	return uint64(owner.GetCompare().GetCreateRevision())
}
