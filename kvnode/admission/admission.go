// Package admission decides when a member takes part in its cluster, and when it gives up
// waiting to. It is pure: events and the time go in, decisions
// come out. It has no clock, lock, goroutine or IO; package kvnode does what it decides.
//
// A member that founds a cluster, or joins one, is admitted once so many others have
// accepted it that any majority without it has one of them: had it been there before and
// lost its data directory, that one would know, and refuse it. A member that founds a
// cluster alone has nobody to ask, so it waits whether somebody claims it.
package admission

import (
	"slices"
	"time"
)

const (
	// Reminder is how often a member that waits to be admitted says so. Shorter: it fills
	// the log of a cluster that is set up by hand. Longer: who looks for what it lacks waits.
	Reminder = 30 * time.Second
	// AlonePatience is how long nobody may have called a founder of one before it takes
	// part. Whoever knows it calls within 6 s: a handshake with what was there before ends
	// after 5 s and the pause after it within 1 s, the pause after a refusal within 5 s.
	// Shorter: it serves an empty store before they reach it. Longer: a first start takes
	// that long.
	AlonePatience = 7 * time.Second
)

// Config is what is known of a member when it starts.
type Config struct {
	// Self is its ID, Members those of the cluster as it was when the member's data
	// directory was made, Self among them.
	Self    uint64
	Members []uint64
	// Waits: it has yet to be admitted. Alone: it founds a cluster of one.
	Waits, Alone bool
	// Patience is AlonePatience, but in tests.
	Patience time.Duration
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
	// asking counts those who claim this member and are being asked, called is when one
	// could not be asked, or the start.
	asking int
	called time.Time
}

// New returns the state of a member that starts now.
func New(cfg Config, now time.Time) *State {
	return &State{
		cfg: cfg, open: !cfg.Waits, accepted: make(map[uint64]bool), refusals: make(refusals),
		reminded: now, called: now,
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

// Asks tells that somebody claims a member that founds alone, and that it is asked
// whether the member is one of its own.
func (s *State) Asks() { s.asking++ }

// Asked tells what came of it: it claims the member, or not, or could not be asked.
func (s *State) Asked(claims bool, err error, now time.Time) Decision {
	s.asking--
	switch {
	case s.open: // the next claim is said
		return Decision{}
	case err != nil:
		s.called = now
	}
	return Decision{GiveUp: claims && err == nil}
}

// IsAsking reports whether somebody is being asked.
func (s *State) IsAsking() bool { return s.asking > 0 }

// Tick tells of a tick.
func (s *State) Tick(now time.Time) Decision {
	switch {
	case s.open:
		return Decision{}
	case s.cfg.Alone && !s.IsAsking() && now.Sub(s.called) >= s.cfg.Patience:
		return Decision{Open: true}
	}
	if s.cfg.Alone || now.Sub(s.reminded) < Reminder {
		return Decision{}
	}
	s.reminded = now
	return Decision{Say: StillWaits}
}
