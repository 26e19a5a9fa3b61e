package ttl

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// A plan is what happens to one ID in a cluster of two members, step by step:
//
//	g G r  a client's grant of shortTTL or longTTL, or its revocation, is replicated
//	a b    the leader, or the other member, applies what is replicated
//	k l    a keep-alive or a TimeToLive comes to the leader
//	1 2 3  right after the leader's engine reads the store next, a client revokes; or
//	       revokes, and grants again, shortly or for long
//	4      right after the leader is confirmed next, the other one takes over, the ID
//	       is revoked and granted shortly, both apply that, and 1 s passes
//	5 6    right after a leader that is about to revoke is confirmed next, a client
//	       revokes, and grants again for long; or that, and the cluster version is raised
//	7      the latter right before the leader's engine reads the cluster version next
//	0      none of these any more
//	D      from now on there are no leader leases
//	f      an entry that raises the cluster version is replicated
//	n N    the other member takes over; and the old leader does not know it
//	s t T  1 s, 4 s or 12 s pass
//	c C    from now on nothing is committed; and all is again
//	o      from now on what engines propose is applied at once,
//	d      is lost, with an error,
//	u      is replicated, with an error,
//	w      is replicated, and applied by a later step
type plan string

const (
	shortTTL = 2
	longTTL  = 30
	theID    = 7
)

var raced = map[rune]plan{'1': "ra", '2': "rga", '3': "rGa", '4': "nrgabs", '5': "rGa", '6': "rGfa", '7': "rGfa"}

// world is the log, and what was promised to clients.
type world struct {
	ctx     context.Context
	clock   clock.Clock
	stop    chan struct{}
	running sync.WaitGroup

	applying sync.Mutex // taken before mu

	mu struct {
		sync.Mutex
		log []*logged // all replicated entries
		// committed is how many entries of log may be applied. stalled keeps it from
		// growing.
		committed int
		stalled   bool
		term      uint64
		leader    *member
		other     *member
		mode      rune
		disabled  bool // there are no leader leases
		race      rune
		// grant is the index of the entry that granted theID last, and promised the time
		// until which it must live.
		grant    uint64
		promised core.Instant
		waiting  int // unanswered keep-alives
		err      error
	}
}

// bubbleClock reads the bubble's time. The clocks of package clock first measure the cost of a
// reading, which would take a tenth of the time of a plan.
type bubbleClock time.Time

// Now implements clock.Clock, with readings above 0.
func (c bubbleClock) Now() core.Instant { return core.Instant(time.Since(time.Time(c)) + sec) }

// logged is an entry of the log.
type logged struct {
	term    uint64
	command *store.Command // nil: raises the cluster version
	applied chan struct{}  // closed when result is set
	result  store.Result
}

// run executes p in a bubble and returns the first failure.
func (p plan) run(t *testing.T, version int64) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ctx: t.Context(), clock: bubbleClock(time.Now()), stop: make(chan struct{})}
		w.mu.mode = 'o'
		w.mu.leader, w.mu.other = w.newMember(t, version), w.newMember(t, version)
		defer w.mu.leader.store.Close()
		defer w.mu.other.store.Close()
		w.takeOver(true)
		for _, step := range p {
			synctest.Wait()
			w.step(step)
		}
		w.end()
		close(w.stop)
		w.running.Wait()
		err = w.mu.err
	})
	return err
}

func (w *world) newMember(t *testing.T, version int64) *member {
	m := &member{world: w, over: make(chan struct{})}
	m.store = openStore(t, version, func(l store.TTLLease) { m.engine.Changed(l) })
	m.before = m.store.Applied()
	m.engine = New(Config{
		Member: m, Store: m, Clock: w.clock,
		Interval: time.Second, MaxGap: 2 * time.Second, Grace: time.Second, Checkpoint: 8 * time.Second,
	})
	w.running.Go(func() { m.engine.Run(w.stop) })
	return m
}

// end repairs everything. Afterwards no lease and no waiting keep-alive may be left, and the
// members must agree.
func (w *world) end() {
	for _, s := range "oCab0" {
		w.step(s)
	}
	time.Sleep(2 * longTTL * time.Second)
	w.step('b')
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range []*member{w.mu.leader, w.mu.other} {
		if all, s := m.store.TTLLeases(), m.engine.Stats(); len(all)+s.Active > 0 {
			w.fail("in the end there are %+v, and the engine counts %d", all, s.Active)
		}
	}
	if w.mu.waiting > 0 {
		w.fail("%d keep-alives are not answered", w.mu.waiting)
	}
}

// fail records the first failure.
func (w *world) fail(format string, args ...any) {
	if w.mu.err == nil {
		w.mu.err = fmt.Errorf(format, args...)
	}
}

func (w *world) step(s rune) {
	w.mu.Lock()
	leader, other := w.mu.leader, w.mu.other
	w.mu.Unlock()
	switch s {
	case 'g':
		w.replicate(0, &store.Command{Request: granting(theID, shortTTL)})
	case 'G':
		w.replicate(0, &store.Command{Request: granting(theID, longTTL)})
	case 'r':
		w.replicate(0, &store.Command{Request: revocation(theID)})
	case 'a':
		leader.apply()
	case 'b':
		other.apply()
	case 'k':
		w.running.Go(leader.keepAlive)
	case 'l':
		w.running.Go(func() { _, _ = leader.engine.TimeLeft(w.ctx, theID) })
	case 'c', 'C':
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stallLocked(s == 'c')
	case 'n', 'N':
		w.takeOver(s == 'n')
	case 's', 't', 'T':
		time.Sleep(map[rune]time.Duration{'s': sec, 't': 4 * sec, 'T': 12 * sec}[s])
	case 'D':
		w.mu.Lock()
		w.mu.disabled = true
		w.mu.Unlock()
	case 'f':
		w.replicate(0, nil)
	case '0', '1', '2', '3', '4', '5', '6', '7':
		w.mu.Lock()
		w.mu.race = s
		w.mu.Unlock()
	default:
		w.mu.Lock()
		w.mu.mode = s
		w.mu.Unlock()
	}
}

func (w *world) stallLocked(stalled bool) {
	w.mu.stalled = stalled
	if !stalled {
		w.mu.committed = len(w.mu.log)
	}
}

// takeOver starts a new term of the other member, which commits the whole log.
func (w *world) takeOver(known bool) {
	w.mu.Lock()
	if known {
		w.mu.leader.deposeLocked()
	}
	w.mu.leader, w.mu.other = w.mu.other, w.mu.leader
	w.mu.term++
	w.mu.leader.deposeLocked()
	w.mu.leader.term = w.mu.term
	w.stallLocked(false)
	w.mu.Unlock()
	w.replicate(0, &store.Command{})
}

// replicate appends a proposal of a client (required term 0) or of a leader.
func (w *world) replicate(required uint64, c *store.Command) *logged {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c != nil {
		c.RequiredTerm = required
	}
	e := &logged{term: w.mu.term, command: c, applied: make(chan struct{})}
	w.mu.log = append(w.mu.log, e)
	w.stallLocked(w.mu.stalled)
	return e
}

// judgeLocked checks the effect of an entry.
func (w *world) judgeLocked(index uint64, e *logged) {
	now := w.clock.Now()
	switch r := e.command.Request; {
	case e.result.Err != nil:
	case r.GetLeaseGrant() != nil:
		w.mu.grant = index
		w.mu.promised = now.Add(time.Duration(r.GetLeaseGrant().GetTTL()) * sec)
	case r.GetLeaseRevoke() != nil && e.command.RequiredTerm != 0 && now.Before(w.mu.promised):
		w.fail("what entry %d granted is revoked for want of keep-alives %v before its time", w.mu.grant, w.mu.promised.Sub(now))
	}
}

// raceAt executes the pending race if it is one of races.
func (w *world) raceAt(races string) {
	w.mu.Lock()
	race := w.mu.race
	if !strings.ContainsRune(races, race) {
		w.mu.Unlock()
		return
	}
	w.mu.race = 0
	w.mu.Unlock()
	for _, s := range raced[race] {
		w.step(s)
	}
}

// member is a member of a world.
type member struct {
	*world
	engine *Engine
	store  *store.Store
	before uint64        // entries of the store before the world's log
	term   uint64        // in which it believes to lead, under the world's mu
	over   chan struct{} // closed when that changes
}

func (m *member) deposeLocked() {
	close(m.over)
	m.term, m.over = 0, make(chan struct{})
}

// apply applies all committed entries. A member that sees a later term stops leading.
func (m *member) apply() {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	log := m.mu.log[:m.mu.committed]
	m.mu.Unlock()
	for _, e := range log[m.store.Applied()-m.before:] {
		m.mu.Lock()
		if m.term != 0 && m.term < e.term {
			m.deposeLocked()
		}
		m.mu.Unlock()
		m.applyOne(e)
	}
}

func (m *member) applyOne(e *logged) {
	index := m.store.Applied() + 1
	if e.command == nil {
		m.store.ApplyConf(index, e.term, nil, &store.MemberChange{ClusterVersion: store.ClusterVersionGenerations})
		return
	}
	got := applyTo(m.store, index, e.term, e.command)
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-e.applied:
		if got.Err != e.result.Err || !proto.Equal(got.Response, e.result.Response) { //nolint:errorlint // the very same
			m.fail("two members apply entry %d as %+v and as %+v", index, e.result, got)
		}
	default:
		e.result = got
		m.judgeLocked(index, e)
		close(e.applied)
	}
}

func (m *member) keepAlive() {
	m.mu.Lock()
	m.mu.waiting++
	m.mu.Unlock()
	ttl, err := m.engine.Renew(m.ctx, theID)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.waiting--
	if err == nil {
		m.mu.promised = max(m.mu.promised, m.clock.Now().Add(time.Duration(ttl)*sec))
	}
}

// read runs a race if the engine reads the store without the lock under which Changed runs. With
// the lock, the race comes later.
func (m *member) read(races string) {
	if r := m.engine.current.Load(); r == nil || r.mu.TryLock() {
		if r != nil {
			r.mu.Unlock()
		}
		m.raceAt(races)
	}
}

// TTLLease implements Leases.
func (m *member) TTLLease(id int64) (store.TTLLease, bool) {
	l, ok := m.store.TTLLease(id)
	m.read("123")
	return l, ok
}

// TTLLeases implements Leases.
func (m *member) TTLLeases() []store.TTLLease {
	all := m.store.TTLLeases()
	m.read("123")
	return all
}

// ClusterVersion implements Leases.
func (m *member) ClusterVersion() int64 {
	m.read("7")
	return m.store.ClusterVersion()
}

// Leadership implements Member.
func (m *member) Leadership() (uint64, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term, m.over
}

// leads reports whether m really leads in term.
func (m *member) leads(term uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.leader == m && m.mu.term == term && m.term == term
}

// LeaseStatus implements Member. No other member takes over while a leader lease is valid.
func (m *member) LeaseStatus() core.Status {
	if term, _ := m.Leadership(); !m.leads(term) {
		return core.Expired
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.disabled {
		return core.Disabled
	}
	return core.Valid
}

// Confirm implements Member.
func (m *member) Confirm(_ context.Context, term uint64) error {
	if !m.leads(term) {
		return ErrNotLeader
	}
	m.apply()
	m.raceAt("4")
	if m.engine.Stats().Revoking > 0 {
		m.raceAt("56")
	}
	return nil
}

// ProposeFenced implements Member.
func (m *member) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, generations []uint64) (store.Result, error) {
	m.mu.Lock()
	mode := m.mu.mode
	m.mu.Unlock()
	if mode == 'd' {
		return store.Result{}, errTest
	}
	e := m.replicate(term, &store.Command{Request: r, Generations: generations})
	switch mode {
	case 'o':
		m.apply()
	case 'u':
		return store.Result{}, errTest
	}
	select {
	case <-e.applied:
		return e.result, nil
	case <-ctx.Done():
		return store.Result{}, ctx.Err()
	}
}
