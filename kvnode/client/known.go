package client

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// pause is for how long an endpoint that lets a request fail is not taken for the leader's.
// Shorter: a leader that hangs gets every request again, each of which waits for its
// timeout. Longer: requests go round after an election is over.
const pause = time.Second

// known is what one gRPC connection's responses have told. A picker asks without a lock.
type known struct {
	mu  sync.Mutex // for who changes it
	now atomic.Pointer[fact]
}

// fact is never changed.
type fact struct {
	leader uint64
	// members has who answers at an endpoint.
	members map[string]uint64
	// failing is an endpoint that has let a request fail, and that counts until then.
	failing string
	until   time.Time
}

func newKnown() *known {
	k := new(known)
	k.now.Store(&fact{})
	return k
}

// leads reports whether requests for the leader go to the named endpoint.
func (f *fact) leads(name string) bool { return f.leader != 0 && f.members[name] == f.leader }

// rests reports whether the named endpoint has just let a request fail.
func (f *fact) rests(name string, now time.Time) bool {
	return f.failing == name && now.Before(f.until)
}

// answered tells that a member has answered at an endpoint, and whom it takes for the
// leader, 0 if it knows none. Whoever answered last is believed. Terms are not compared,
// since they begin anew where a cluster is restored from a snapshot; a member that is late
// sends requests to a former leader, who passes them on.
func (k *known) answered(name string, member, leader uint64) {
	f := k.now.Load()
	if member == 0 || f.members[name] == member && (leader == 0 || leader == f.leader) {
		return // which is nearly always
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.now.Load()
	next.members = maps.Clone(next.members)
	if next.members == nil {
		next.members = make(map[string]uint64)
	}
	next.members[name] = member
	next.leader = cmp.Or(leader, next.leader)
	k.now.Store(&next)
}

// failed tells that a request has failed at an endpoint.
func (k *known) failed(name string, now time.Time) {
	if !k.now.Load().leads(name) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.now.Load()
	next.failing, next.until = name, now.Add(pause)
	k.now.Store(&next)
}

// keep forgets all endpoints but the named ones.
func (k *known) keep(names map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.now.Load()
	next.members = maps.Clone(next.members)
	maps.DeleteFunc(next.members, func(name string, _ uint64) bool { return !names[name] })
	k.now.Store(&next)
}
