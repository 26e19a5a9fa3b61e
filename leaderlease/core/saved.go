package core

import "time"

// saved is what stable storage holds about this node's promises: a duration that none
// of them exceeds. A restart holds for it (V6), and so the order is what matters. It
// rises before the first longer promise is made; it falls after such promises have
// become impossible, and all that were made have ended.
type saved struct {
	// limit bounds promises. Invariant: what is durable is never shorter.
	limit time.Duration
	// floor is how far it falls. It is durable as long as the process runs.
	floor time.Duration
	// held is the longest duration that storage may hold.
	held time.Duration
	// wanted is the longest that a leader has asked for in vain, 0 if none has.
	wanted time.Duration
	// quiet is when the last promise was made, or may have been, that is longer than
	// floor.
	quiet Instant
	// void: the clock has stepped since the newest save began. Who says then that it is
	// durable may be of before, and storage hold something else by now.
	void bool
}

// covers reports whether a promise of d may be made at now. If not, d is wanted.
func (s *saved) covers(d time.Duration, now Instant) bool {
	if d > s.limit {
		s.wanted = max(s.wanted, d)
		return false
	}
	if d > s.floor {
		s.quiet = now
	}
	return true
}

// clockStepped begins anew at now. The memory may be one from before the newest save,
// and then storage holds less than it says, though never less than floor, or more, though
// never more than the longest promise of all.
func (s *saved) clockStepped(longest time.Duration, now Instant) {
	s.limit, s.held, s.quiet, s.void = min(s.limit, s.floor), max(s.held, longest), now, true
}

// Keep tells the guard that stable storage keeps the longest promise: d is durable, and
// falls to floor once nobody asks for more. Without it the guard makes promises up to
// the longest, and each restart holds for that.
func (g *Guard) Keep(floor, d time.Duration, now Instant) {
	g.saved = saved{limit: d, floor: floor, held: d, quiet: now}
}

// Save returns a duration that is to be made durable now, in the place of the former
// one, if any is. Saved tells that it is. The caller makes one durable at a time.
func (g *Guard) Save(now Instant) (d time.Duration, ok bool) {
	s := &g.saved
	ended := !now.Before(s.quiet.Add(s.held)) // whatever was promised for longer than floor
	switch {
	case !now.Valid():
		return 0, false
	case s.wanted > 0:
		d = s.wanted
		if !ended {
			d = max(d, s.held)
		}
		s.held = max(s.held, d)
	case s.held > s.floor && ended:
		d = s.floor
	default:
		return 0, false
	}
	s.limit = min(s.limit, d) // before it is durable: no longer promise may be made meanwhile
	s.wanted, s.quiet, s.void = 0, now, false
	return d, true
}

// Saved tells that d is durable, as Save has asked for. After a step of the clock since
// then it counts for nothing: what is wanted is saved once more.
func (g *Guard) Saved(d time.Duration) {
	if !g.saved.void {
		g.saved.limit, g.saved.held = d, d
	}
}
