package ttl

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/core"
)

// member is one member of a world.
type member struct {
	*world
	engine *Engine
	store  *store.Store
	before uint64        // entries of the store that are not in the world's log
	term   uint64        // under the world's mu: in which it believes that it leads
	over   chan struct{} // likewise: closed when that ends, or begins
}

func (m *member) deposeLocked() {
	close(m.over)
	m.term, m.over = 0, make(chan struct{})
}

// apply applies all that is committed. A member that learns of a later term no
// longer leads.
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
		m.store.ApplyConf(index, e.term, nil, &store.MemberChange{Format: store.FormatGrants})
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

// read lets clients in where the engine reads the store, if it does so without the
// lock under which it hears of changes: with it, they come later.
func (m *member) read(races string) {
	if r := m.engine.reign.Load(); r == nil || r.mu.TryLock() {
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

// Format implements Leases.
func (m *member) Format() int64 {
	m.read("7")
	return m.store.Format()
}

// Reign implements Member.
func (m *member) Reign() (uint64, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term, m.over
}

// leads reports whether m leads in term, whatever it believes.
func (m *member) leads(term uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.leader == m && m.mu.term == term && m.term == term
}

// Standing implements Member. Nobody takes over from a valid leader lease.
func (m *member) Standing() core.Status {
	if term, _ := m.Reign(); !m.leads(term) {
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
func (m *member) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, grants []uint64) (store.Result, error) {
	m.mu.Lock()
	mode := m.mu.mode
	m.mu.Unlock()
	if mode == 'd' {
		return store.Result{}, errTest
	}
	e := m.replicate(term, &store.Command{Request: r, Grants: grants})
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
