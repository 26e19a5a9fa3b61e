package kvnode

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// ErrForeignCluster means that this member, which has not taken part in anything
// yet, was made for another cluster than the one that it meets.
var ErrForeignCluster = errors.New("kvnode: the other members are of another cluster")

const (
	// refusalPatience is how long all others must refuse a member before it gives
	// up. Shorter: one that starts while its predecessors stop ends, too.
	refusalPatience = 10 * time.Second
	// minRefusals is how often it must have been refused by each.
	minRefusals = 3
	// refusalMemory is after how long without another one a refusal is forgotten.
	// It is longer than the longest pause between two attempts to connect.
	refusalMemory = 15 * time.Second
)

// foreign remembers which peers say that they are of another cluster.
type foreign struct {
	hush
	mu struct {
		sync.Mutex
		since map[uint64]span // refusals in a row
	}
}

// span is from the first of some refusals to the last.
type span struct {
	first, last time.Time
	count       int
}

// accepted forgets that peer has refused.
func (f *foreign) accepted(peer uint64) {
	f.otherwise(peer)
	f.forget(peer)
}

// otherwise forgets that peer was of another cluster: it refuses for another reason.
func (f *foreign) otherwise(peer uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.since, peer)
}

// refused is called each time a peer says that it is of another cluster. A member
// that has taken part never ends because of that: whoever refuses it may be the one
// that is wrong. One that waits to be let in can be of no use once nobody wants it.
func (f *foreign) refused(n *Node, r *transport.RefusedError) {
	f.note(r.Peer)
	waits := n.waiting()
	if waits && f.allRefuse(n.id.Members, n.ID()) {
		n.fail(fmt.Errorf("%w: each of them refuses this one: %w; %s", ErrForeignCluster, r, n.remedy()))
		return
	}
	if !f.loud(r.Peer) {
		return
	}
	advice := "its data directory, or this member's, is of another cluster; remove the one that is wrong from where it runs"
	if waits {
		advice = n.remedy()
	}
	n.log.Error("a peer is of another cluster", "peer", n.called(r.Peer), "error", r, "advice", advice)
}

// note keeps the span of a peer's refusals.
func (f *foreign) note(peer uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.since == nil {
		f.mu.since = make(map[uint64]span)
	}
	now := time.Now()
	s := f.mu.since[peer]
	if now.Sub(s.last) > refusalMemory {
		s = span{first: now}
	}
	s.last = now
	s.count++
	f.mu.since[peer] = s
}

// allRefuse reports whether all members but self have refused for long, and still
// do.
func (f *foreign) allRefuse(members []store.Member, self uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, m := range members {
		s, ok := f.mu.since[m.ID]
		if m.ID != self && (!ok || s.count < minRefusals || now.Sub(s.last) > refusalMemory || now.Sub(s.first) < refusalPatience) {
			return false
		}
	}
	return true
}

// remedy is what helps a member that waits to be let in by another cluster.
func (n *Node) remedy() string {
	if n.id.Joined {
		return startAnew
	}
	return "the ID of a cluster is made of --initial-cluster and --initial-cluster-token as they were when the data directory was made, " +
		"and they must be the same on all members: if those of the others are right, remove " + n.cfg.DataDir +
		", which holds nothing yet, and start this member with the same; a cluster that was there before, or was restored from a snapshot, " +
		"is joined with --initial-cluster-state existing, after member add"
}

// waiting reports whether the others have yet to let this member in.
func (n *Node) waiting() bool {
	n.noting.Lock()
	defer n.noting.Unlock()
	return n.id.waits()
}
