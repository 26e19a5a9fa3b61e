package ttl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// rig is an Engine with a store, and a member and a log that the test controls. It is for use in a
// synctest bubble.
type rig struct {
	t      *testing.T
	engine *Engine
	stop   chan struct{}
	ended  sync.WaitGroup
	clock  clock.Clock
	store  *store.Store

	applying sync.Mutex // taken before mu

	mu      sync.Mutex
	term    uint64 // 0: not leading
	over    chan struct{}
	status  core.Status
	slept   time.Duration // by which the lease clock is ahead of the bubble's
	revoked []string
	// confirmErr and proposeErr fail calls. held blocks proposals.
	confirmErr error
	proposeErr error
	held       chan struct{}
	confirms   int
	// rounds: a quorum answers although the lease does not hold.
	rounds bool
	round  time.Duration // duration of a quorum round
	// confirmed is called in the next Confirm during a revocation, and proposing in the next
	// ProposeFenced.
	confirmed, proposing func()
}

// inRig runs f in a bubble, with an Engine that does not lead yet.
func inRig(t *testing.T, amend func(*Config), f func(t *testing.T, r *rig)) {
	t.Helper()
	inRigOf(t, store.ClusterVersionGenerations, amend, f)
}

// inRigOf is inRig with a cluster of that version.
func inRigOf(t *testing.T, version int64, amend func(*Config), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, stop: make(chan struct{}), over: make(chan struct{}), clock: clock.Runtime()}
		r.store = openStore(t, version, func(l store.TTLLease) { r.engine.Changed(l) })
		defer r.store.Close()
		cfg := Config{Member: r, Store: r.store, Clock: r}
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

// lead makes the member lead in term with a valid leader lease. Term 0 ends its leadership.
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

// answering makes a quorum answer after that time, whatever the leader lease's status.
func (r *rig) answering(s core.Status, round time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.rounds, r.round = s, true, round
}

// sleep advances the lease clock only, as if the process had been stopped.
func (r *rig) sleep(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slept += d
}

// hold blocks proposals until release.
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

// openStore returns an empty store of that cluster version.
func openStore(t *testing.T, version int64, events func(store.TTLLease)) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Backend: storetest.NewDisk().Open(), TTLEvents: events})
	if err != nil {
		t.Fatal(err)
	}
	s.ApplyConf(1, 1, nil, &store.MemberChange{ClusterVersion: version})
	return s
}

// raise raises the cluster version.
func (r *rig) raise() {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.store.ApplyConf(r.store.Applied()+1, 1, nil, &store.MemberChange{ClusterVersion: store.ClusterVersionGenerations})
}

// once sets a function that happen calls once.
func (r *rig) once(at *func(), f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*at = f
}

// happen calls that function.
func (r *rig) happen(at *func()) {
	r.mu.Lock()
	f := *at
	*at = nil
	r.mu.Unlock()
	if f != nil {
		f()
	}
}

// apply applies a command as an entry of that term.
func (r *rig) apply(term uint64, c *store.Command) store.Result {
	r.applying.Lock()
	defer r.applying.Unlock()
	return applyTo(r.store, r.store.Applied()+1, term, c)
}

func applyTo(s *store.Store, index, term uint64, c *store.Command) store.Result {
	data, err := c.Encode()
	if err != nil {
		panic(err) // two payloads
	}
	return s.Apply(index, term, data)
}

// grant grants a lease for a client.
func (r *rig) grant(id, ttl int64) {
	r.t.Helper()
	if res := r.apply(1, &store.Command{Request: granting(id, ttl)}); res.Err != nil {
		r.t.Fatalf("grant of %d = %v", id, res.Err)
	}
}

// revoke revokes a lease for a client.
func (r *rig) revoke(id int64) {
	r.t.Helper()
	if res := r.apply(1, &store.Command{Request: revocation(id)}); res.Err != nil {
		r.t.Fatalf("revocation of %d = %v", id, res.Err)
	}
}

func granting(id, ttl int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: ttl}}
}

func revocation(id int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: id}}
}

func remembering(id, left int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: id, Remaining_TTL: left}}}}
}

func (r *rig) renew(id int64) {
	r.t.Helper()
	if _, err := r.engine.Renew(r.t.Context(), id); err != nil {
		r.t.Fatalf("Renew(%d) = %v", id, err)
	}
}

// gone returns the IDs of the leases that the engine has revoked.
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

// Leadership implements Member.
func (r *rig) Leadership() (uint64, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term, r.over
}

// LeaseStatus implements Member.
func (r *rig) LeaseStatus() core.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Confirm implements Member.
func (r *rig) Confirm(_ context.Context, term uint64) error {
	r.mu.Lock()
	round := r.round
	r.mu.Unlock()
	time.Sleep(round)
	if r.engine.Stats().Revoking > 0 {
		r.happen(&r.confirmed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirms++
	if r.term != term {
		return ErrNotLeader
	}
	if (r.status == core.Expired || r.status == core.Margin) && !r.rounds {
		return errTest // no quorum answers, so the lease is not renewed either
	}
	return r.confirmErr
}

// ProposeFenced implements Member.
func (r *rig) ProposeFenced(ctx context.Context, term uint64, req *pb.InternalRaftRequest, generations []uint64) (store.Result, error) {
	r.happen(&r.proposing)
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
	now, err := r.term, r.proposeErr
	r.mu.Unlock()
	if err != nil {
		return store.Result{}, err
	}
	res := r.apply(now, &store.Command{RequiredTerm: term, Request: req, Generations: generations})
	if id := req.GetLeaseRevoke().GetID(); id != 0 && res.Err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.revoked = append(r.revoked, fmt.Sprint(id))
	}
	return res, nil
}

var errTest = errors.New("test")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
