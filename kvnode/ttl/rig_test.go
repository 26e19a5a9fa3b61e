package ttl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// rig is a member, a store and a log that do what a test says, with an Engine on
// them. It is for use in a bubble.
type rig struct {
	t      *testing.T
	engine *Engine
	stop   chan struct{}
	ended  sync.WaitGroup
	clock  clock.Clock

	mu      sync.Mutex
	term    uint64 // 0: it does not lead
	over    chan struct{}
	status  core.Status
	slept   time.Duration // that the lease clock is ahead of the bubble's
	leases  map[int64]store.TTLLease
	revoked []string
	// confirmErr and proposeErr fail requests; held stops proposals.
	confirmErr error
	proposeErr error
	held       chan struct{}
	confirms   int
}

// inRig runs f in a bubble, on an Engine whose member does not lead yet.
func inRig(t *testing.T, amend func(*Config), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, stop: make(chan struct{}), over: make(chan struct{}), clock: clock.Runtime(), leases: map[int64]store.TTLLease{}}
		cfg := Config{Member: r, Leases: r, Clock: r}
		if amend != nil {
			amend(&cfg)
		}
		r.engine = New(cfg)
		r.ended.Go(func() { r.engine.Run(r.stop) })
		defer func() {
			r.release()
			close(r.stop)
			r.ended.Wait()
		}()
		f(t, r)
	})
}

// lead makes the member lead in term with a valid leader lease; term 0 ends that.
func (r *rig) lead(term uint64) {
	r.mu.Lock()
	old := r.over
	r.term, r.over, r.status = term, make(chan struct{}), core.Valid
	r.mu.Unlock()
	close(old)
	synctest.Wait()
}

func (r *rig) standing(s core.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = s
}

// sleep lets only the lease clock pass, as if the process had been stopped.
func (r *rig) sleep(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slept += d
}

// hold stops proposals until release.
func (r *rig) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = make(chan struct{})
}

func (r *rig) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

func (r *rig) failProposals(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proposeErr = err
}

// grant makes a TTL lease as applying an entry does.
func (r *rig) grant(id, ttl int64) {
	l := store.TTLLease{ID: id, TTL: ttl}
	r.mu.Lock()
	r.leases[id] = l
	r.mu.Unlock()
	r.engine.Changed(l)
}

func (r *rig) renew(id int64) {
	r.t.Helper()
	if _, err := r.engine.Renew(r.t.Context(), id); err != nil {
		r.t.Fatalf("Renew(%d) = %v", id, err)
	}
}

// gone returns which TTL leases were revoked, and when since begun.
func (r *rig) gone() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.revoked)
}

func (r *rig) wantGone(want ...string) {
	r.t.Helper()
	if got := r.gone(); !slices.Equal(got, want) {
		r.t.Fatalf("revoked: %q, want %q", got, want)
	}
}

// Now implements clock.Clock.
func (r *rig) Now() core.Instant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clock.Now().Add(r.slept)
}

// Reign implements Member.
func (r *rig) Reign() (uint64, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term, r.over
}

// Standing implements Member.
func (r *rig) Standing() core.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Confirm implements Member.
func (r *rig) Confirm(_ context.Context, term uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirms++
	if r.term != term {
		return ErrNotLeader
	}
	return r.confirmErr
}

// ProposeFenced implements Member.
func (r *rig) ProposeFenced(ctx context.Context, term uint64, req *pb.InternalRaftRequest) (store.Result, error) {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return store.Result{}, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.proposeErr != nil:
		return store.Result{}, r.proposeErr
	case r.term != term:
		return store.Result{Err: store.ErrFenced}, nil
	}
	for _, c := range req.GetLeaseCheckpoint().GetCheckpoints() {
		if l, ok := r.leases[c.GetID()]; ok {
			l.Remaining = c.GetRemaining_TTL()
			r.leases[l.ID] = l
		}
	}
	if id := req.GetLeaseRevoke().GetID(); id != 0 {
		if _, ok := r.leases[id]; !ok {
			return store.Result{Err: rpctypes.ErrGRPCLeaseNotFound}, nil
		}
		delete(r.leases, id)
		r.revoked = append(r.revoked, fmt.Sprint(id))
		r.engine.Changed(store.TTLLease{ID: id})
	}
	return store.Result{}, nil
}

// TTLLease implements Leases.
func (r *rig) TTLLease(id int64) (store.TTLLease, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.leases[id]
	return l, ok
}

// TTLLeases implements Leases.
func (r *rig) TTLLeases() []store.TTLLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.leases))
}

var errTest = errors.New("test")
