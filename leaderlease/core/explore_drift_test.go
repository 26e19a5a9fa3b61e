package core

// drift bounds how far two clocks part while a promise or a hold lasts, and no
// longer (A1). Each promise that a voter has made in its last d units is an entry:
// its age by the voter's clock, and by how much the voter's clock has gained on the
// leader's since. An entry is a bit, age*(2*skew+1) + gain+skew.
type drift uint16

// opened adds an entry of age 0 that has gained nothing.
func (d drift) opened(b *bounds) drift { return d | 1<<b.skew }

// voterTicked returns the entries after the voter's clock has moved by one unit,
// and whether A1 lets it.
func (d drift) voterTicked(b *bounds) (drift, bool) {
	if d&b.gain(2*b.skew) != 0 {
		return d, false
	}
	width := 2*b.skew + 1
	return d << (width + 1) & (1<<(b.d*width) - 1), true
}

// leaderTicked does the same for the leader's clock.
func (d drift) leaderTicked(b *bounds) (drift, bool) { return d >> 1, d&b.gain(0) == 0 }

// gain returns the bits of all entries with this gain.
func (b *bounds) gain(g int) (bits drift) {
	for age := range b.d {
		bits |= 1 << (age*(2*b.skew+1) + g)
	}
	return bits
}

// tick moves one clock by one unit, if the promises under way let it.
func (s *stage) tick(i int) bool {
	a := &s.actors[i]
	if a.now > lastInstant/2 {
		return false // where clocks are left as they are
	}
	for j := range s.b.nodes {
		if j == i {
			continue
		}
		var mine, theirs bool
		a.drift[j], mine = a.drift[j].voterTicked(s.b)
		s.actors[j].drift[i], theirs = s.actors[j].drift[i].leaderTicked(s.b)
		if !mine || !theirs {
			return false
		}
	}
	a.now++
	return true
}

// shift moves the clock of a node that has begun just now.
func (a *actor) shift(by Instant) {
	a.now += by
	if a.lease.term != 0 {
		a.lease.after += by
	}
}

// holds opens an entry with every other clock: what this node has promised before, it
// holds from now on.
func (s *stage) holds(i int) {
	for j := range s.b.nodes {
		s.actors[i].drift[j] = 0
		if j != i {
			s.actors[i].drift[j] = drift(0).opened(s.b)
		}
	}
}

// jump moves a clock ahead, or back by one unit, and says so to its node, as
// the marker of a disruption does, or the reading itself.
func (s *stage) jump(i int, by Instant) bool {
	a, left := &s.actors[i], &s.left.jumps
	if by < 0 {
		left = &s.left.backs
	}
	if *left == 0 {
		return false
	}
	*left--
	a.now += by
	if by < 0 {
		a.lease.ClockWentBack(a.now)
	} else {
		a.lease.ClockStepped(a.now)
	}
	a.guard.ClockStepped(a.now)
	if a.lease.term == 0 {
		a.lease.StepDown() // as each Ready does
	}
	s.holds(i)
	return true
}

// recall gives node i its memory from the start of its process, when storage may have held
// the longest promise of all, and says so as a disruption does. What raft knows stays:
// nothing repairs that it forgets a vote.
func (s *stage) recall(i int) bool {
	a := &s.actors[i]
	a.guard = *NewGuard(a.now, 1, s.b.maxPromise(), 0)
	a.guard.Keep(s.b.units(s.b.floor), s.b.maxPromise())
	a.guard.SetTerm(uint64(a.term))
	a.saving = 0
	return s.jump(i, 0)
}

// pass moves every clock by one unit.
func (s *stage) pass() bool {
	for i := range s.b.nodes {
		a := &s.actors[i]
		for j := range s.b.nodes {
			if i != j {
				// Nobody gains anything.
				width := 2*s.b.skew + 1
				a.drift[j] = a.drift[j] << width & (1<<(s.b.d*width) - 1)
			}
		}
		if a.now++; a.now > lastInstant/2 {
			return false
		}
	}
	return true
}
