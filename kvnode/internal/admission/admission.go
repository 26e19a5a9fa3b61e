// Package admission decides which peers may connect to a member (connect.go), and when a member that founds or joins
// a cluster takes part in it (this file). It is pure: events and the time go in, decisions come out. It has no
// clock, lock, goroutine or IO; package kvnode carries the decisions out.
//
// A member with an empty directory takes part once n - n/2 of the n - 1 others have accepted it (Missing). If it was
// there before, lost its directory, and its registration was committed, one of them has the registration in its log
// and refuses the member. So two wiped members of three cannot found a second cluster beside the third.
package admission

import (
	"slices"
	"time"
)

// Reminder is the time between two log lines of a member that waits to be admitted.
const Reminder = 30 * time.Second

// Config is what is known of a member when it starts.
type Config struct {
	// Self is its ID, Members those of the cluster as it was when the member's data
	// directory was made, Self among them.
	Self    uint64
	Members []uint64
	// Waits is set if it has yet to be admitted.
	Waits bool
}

// Decision is what to do now, in the order of the fields.
type Decision struct {
	// GiveUp: end the member, because of the event that was just told.
	GiveUp bool
	// Open: make durable that the member is admitted, and call Opened.
	Open bool
	// Say is what operators are told, if they are told anything.
	Say Line
}

// Line is something that operators are told.
type Line int

const (
	// Silence is no line.
	Silence Line = iota
	// Waits is that somebody has accepted the member, and others must, too.
	Waits
	// StillWaits is that nothing has changed since Waits, or the start.
	StillWaits
	// Foreign is that a peer refuses the member as one of another cluster.
	Foreign
)

// State is what a member knows that decides about its taking part.
type State struct {
	cfg      Config
	open     bool // raft takes part
	accepted map[uint64]bool
	refusals refusals
	reminded time.Time // when it was last said who is awaited
}

// New returns the state of a member that starts now.
func New(cfg Config, now time.Time) *State {
	return &State{
		cfg: cfg, open: !cfg.Waits, accepted: make(map[uint64]bool), refusals: make(refusals),
		reminded: now,
	}
}

// IsOpen reports whether the member takes part.
func (s *State) IsOpen() bool { return s.open }

// Opened tells that it is durable that the member is admitted: from now on it takes part.
func (s *State) Opened() { s.open = true }

// Awaited are those of whom some must accept the member before it takes part.
func (s *State) Awaited() (ids []uint64) {
	for _, id := range s.cfg.Members {
		if !s.open && id != s.cfg.Self && !s.accepted[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// Missing is how many of them must.
func (s *State) Missing() int {
	first := len(s.cfg.Members)
	return first - first/2 - len(s.accepted)
}

// Accepted tells that a peer has accepted the member.
func (s *State) Accepted(peer uint64) Decision {
	delete(s.refusals, peer)
	if s.open || !slices.Contains(s.cfg.Members, peer) {
		return Decision{}
	}
	s.accepted[peer] = true
	if s.Missing() > 0 {
		return Decision{Say: Waits}
	}
	return Decision{Open: true}
}

// Foreign tells that a peer refuses the member as one of another cluster. A member that
// takes part never ends because of that: whoever refuses it may be the one that is
// wrong. One that waits can be of no use once nobody wants it.
func (s *State) Foreign(peer uint64, now time.Time) Decision {
	s.refusals.note(peer, now)
	if !s.open && s.refusals.areAll(s.cfg.Members, s.cfg.Self, now) {
		return Decision{GiveUp: true}
	}
	return Decision{Say: Foreign}
}

// Refused tells that a peer refuses the member for another reason.
func (s *State) Refused(peer uint64) { delete(s.refusals, peer) }

// Tick tells of a tick.
func (s *State) Tick(now time.Time) Decision {
	if s.open || now.Sub(s.reminded) < Reminder {
		return Decision{}
	}
	s.reminded = now
	return Decision{Say: StillWaits}
}
