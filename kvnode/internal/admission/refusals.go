package admission

import "time"

const (
	// RefusalPatience is how long all others must refuse a member as foreign before it gives
	// up. Shorter: one that starts while its predecessors stop ends, too.
	RefusalPatience = 10 * time.Second
	// minRefusals is how often it must have been refused by each. Fewer: one attempt that met
	// what ran at an address before, and another one late, would be enough.
	minRefusals = 3
	// memory is after how long without another one a refusal is forgotten. It is longer
	// than the longest pause between two attempts to connect, so that refusals in a row are
	// seen as such. Longer: those by a cluster that is gone by now would still count.
	memory = 15 * time.Second
)

// refusals are those in a row by peers that say they are of another cluster.
type refusals map[uint64]span

// span is from the first of some refusals to the last. A peer that accepts the member, or refuses
// it for another reason, ends it (State.Accepted, State.Refused).
type span struct {
	first, last time.Time
	count       int
}

// note counts a refusal by a peer. After a silence longer than memory it is the first one.
func (r refusals) note(peer uint64, now time.Time) {
	s := r[peer]
	if now.Sub(s.last) > memory {
		s = span{first: now}
	}
	s.last = now
	s.count++
	r[peer] = s
}

// areAll reports whether all members but self have refused for long, and still do. One that
// is silent is enough for no: it may be the one that knows this member.
func (r refusals) areAll(members []uint64, self uint64, now time.Time) bool {
	for _, id := range members {
		s, ok := r[id]
		if id != self && (!ok || s.count < minRefusals || now.Sub(s.last) > memory || now.Sub(s.first) < RefusalPatience) {
			return false
		}
	}
	return true
}
