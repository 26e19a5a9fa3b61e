// Package admission decides which peers may connect to a member (connect.go), and when a member that founds or joins
// a cluster takes part in it (this file). It is pure: events and the time go in, decisions come out. It has no
// clock, lock, goroutine or IO; package membership carries the decisions out.
//
// In a cluster of n, a member with an empty directory takes part once n - n/2 of the n - 1 others have accepted it
// (Missing). Suppose that it was in the cluster before, its registration was committed, and it has lost its
// directory. Then at least n/2 of the others have the registration in their logs and refuse the member, so too few
// are left to accept it: two wiped members of three cannot found a second cluster beside the third.
package admission

import (
	"slices"
	"time"
)

const (
	// Reminder is the time between two reminders (LogWaiting) of a member that waits to be admitted.
	Reminder = 30 * time.Second
	// RefusalPatience is the time for which all others must refuse a member as foreign before it gives up. It is long
	// enough for a member of a former cluster, which still runs at a peer's address, to stop.
	RefusalPatience = 10 * time.Second
	// minRefusals is the number of refusals by each peer before the member gives up. With two, one wrong refusal,
	// by a member of a former cluster, and its late repetition would be enough.
	minRefusals = 3
	// refusalMemory is the time after which a peer's refusals are forgotten if no other follows. It is longer than
	// the longest pause between two attempts to connect.
	refusalMemory = 15 * time.Second
)

// Config describes a member at its start.
type Config struct {
	// Self is its ID. Members are the IDs of the cluster, itself included, as of the creation of its data directory.
	Self    uint64
	Members []uint64
	// Waits is set if the member has not been admitted yet.
	Waits bool
}

// Decision is what the caller must do now.
type Decision int

const (
	// Nothing means that there is nothing to do.
	Nothing Decision = iota
	// Open means: make durable that the member is admitted, then call Opened.
	Open
	// LogAccepted means: log that a peer has accepted the member, and that more must.
	LogAccepted
	// LogWaiting means: log that the member still waits.
	LogWaiting
)

// State decides when one member takes part.
type State struct {
	cfg      Config
	open     bool // the member takes part
	accepted map[uint64]bool
	refusals map[uint64]refusals
	reminded time.Time // when Tick last returned LogWaiting, or the start
}

// refusals counts the refusals in a row in which one peer says that it belongs to another cluster. An acceptance, or
// a refusal for another reason, ends the row.
type refusals struct {
	first, last time.Time
	count       int
}

// New returns the state of a member that starts now.
func New(cfg Config, now time.Time) *State {
	return &State{
		cfg: cfg, open: !cfg.Waits, accepted: make(map[uint64]bool), refusals: make(map[uint64]refusals),
		reminded: now,
	}
}

// IsOpen reports whether the member takes part.
func (s *State) IsOpen() bool { return s.open }

// Opened records that the admission is durable. The member takes part from now on.
func (s *State) Opened() { s.open = true }

// Awaited returns the members that have not accepted this one. Missing says how many of them still must. Once this
// member takes part, Awaited returns none.
func (s *State) Awaited() (ids []uint64) {
	for _, id := range s.cfg.Members {
		if !s.open && id != s.cfg.Self && !s.accepted[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// Missing returns how many members must still accept this one.
func (s *State) Missing() int {
	n := len(s.cfg.Members)
	return n - n/2 - len(s.accepted)
}

// Accepted records that a peer has accepted the member.
func (s *State) Accepted(peer uint64) Decision {
	delete(s.refusals, peer)
	if s.open || !slices.Contains(s.cfg.Members, peer) {
		return Nothing
	}
	s.accepted[peer] = true
	if s.Missing() > 0 {
		return LogAccepted
	}
	return Open
}

// Foreign records that a peer has refused the member as one of another cluster. It reports whether the member must
// stop because of that. A member that takes part goes on, since the peer may be wrong. A member that
// waits gives up when all others refuse it.
func (s *State) Foreign(peer uint64, now time.Time) (giveUp bool) {
	r := s.refusals[peer]
	if now.Sub(r.last) > refusalMemory {
		r = refusals{first: now}
	}
	r.last = now
	r.count++
	s.refusals[peer] = r
	return !s.open && s.allRefuse(now)
}

// allRefuse reports whether all others have refused the member for RefusalPatience, and still do. If one of them does
// not answer, the member goes on: that one may belong to its cluster.
func (s *State) allRefuse(now time.Time) bool {
	for _, id := range s.cfg.Members {
		r, ok := s.refusals[id]
		if id != s.cfg.Self && (!ok || r.count < minRefusals || now.Sub(r.last) > refusalMemory || now.Sub(r.first) < RefusalPatience) {
			return false
		}
	}
	return true
}

// Refused records that a peer has refused the member for another reason.
func (s *State) Refused(peer uint64) { delete(s.refusals, peer) }

// Tick is called at each tick.
func (s *State) Tick(now time.Time) Decision {
	if s.open || now.Sub(s.reminded) < Reminder {
		return Nothing
	}
	s.reminded = now
	return LogWaiting
}
