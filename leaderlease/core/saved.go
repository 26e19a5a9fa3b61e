package core

import "time"

// saved is what stable storage holds about this node's promises: a duration that is no
// shorter than a promise that may not have ended. A restart holds for it (V6).
//
// It rises before the first longer promise is made. It falls once in a process at most:
// when the restart hold has ended, and with it all promises of earlier processes.
type saved struct {
	// limit bounds promises. Invariant: storage holds at least this.
	limit time.Duration
	// longest is the longest promise that this process has made or was asked for, and no
	// less than what a start saves. Invariant: it never decreases.
	longest time.Duration
}

// covers reports whether a promise of d may be made. If not, Save asks for d.
func (s *saved) covers(d time.Duration) bool {
	s.longest = max(s.longest, d)
	return d <= s.limit
}

// clockStepped is for a memory that may be older than storage: it lacks promises of up to
// most. Storage may have fallen to longest since, and no further: longest never decreases.
func (s *saved) clockStepped(most time.Duration) {
	s.limit, s.longest = min(s.limit, s.longest), max(s.longest, most)
}

// Keep tells the guard that stable storage holds d, and that the leader of this process
// asks for floor. Without it the guard makes promises up to the longest, saves nothing,
// and each restart holds for that.
func (g *Guard) Keep(floor, d time.Duration) { g.saved = saved{limit: d, longest: floor} }

// Save returns the duration that storage must hold from now on, if it is not what storage
// holds. Saved tells the guard that it is durable. The caller makes one durable at a time.
func (g *Guard) Save(now Instant) (d time.Duration, ok bool) {
	s := &g.saved
	falls := s.limit > s.longest
	if !now.Valid() || s.limit == s.longest || (falls && g.Held(now)) {
		return 0, false
	}
	s.limit = min(s.limit, s.longest) // before it is durable: storage may hold it any time now
	return s.longest, true
}

// Saved tells the guard that d is durable, as Save has asked for.
func (g *Guard) Saved(d time.Duration) { g.saved.limit = d }
