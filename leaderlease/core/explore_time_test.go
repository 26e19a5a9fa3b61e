package core

import (
	"fmt"
	"math/bits"
)

// Instants of one clock are compared with each other only, and no further apart
// than a few units. So what they are does not matter, only how they lie: clocks are
// moved so that each begins at firstInstant, and gaps that are wider than anything
// that is added to an instant are made as wide as that. Without this no clock could
// run for long, with it the states are finite.
const (
	firstInstant Instant = 2
	lastInstant  Instant = 127
)

// axes are the instants of each clock in a stage.
type axes [maxActors]axis

type axis struct {
	n  int
	of [48]*Instant
}

func (a *axis) add(i *Instant) {
	if *i != 0 && *i != Forever {
		a.of[a.n] = i
		a.n++
	}
}

// settle brings all instants of the stage to their least form.
func (s *stage) settle() {
	s.forget()
	if s.b.apart {
		return
	}
	x := &s.axes
	for i := range s.b.nodes {
		x[i].n = 0
	}
	for i := range s.b.nodes {
		s.collect(x, i)
	}
	for i := range s.b.letters {
		switch l := &s.letters[i]; l.kind {
		case probeLetter, handoverLetter:
			x[l.from-1].add(&l.at)
		case grantLetter:
			x[l.to-1].add(&l.at)
		case forcedLetter:
			s.axisOf(x, uint64(l.of)).add(&l.at)
		}
	}
	for i := range s.b.nodes {
		x[i].squeeze(s.b.widest())
	}
}

// axisOf returns the clock that a term's instants are of: its leader's.
func (s *stage) axisOf(x *axes, term uint64) *axis { return &x[s.led[term]-1] }

func (s *stage) collect(x *axes, i int) {
	a := &s.actors[i]
	own, g, l := &x[i], &a.guard, &a.lease
	own.add(&a.now)
	own.add(&g.promise.until)
	own.add(&g.owed)
	own.add(&g.holdUntil)
	if g.promise.term != 0 {
		x[g.promise.leader-1].add(&g.promise.sent)
	}
	if g.release.Term != 0 {
		s.axisOf(x, g.release.Term).add(&g.release.At)
	}
	if a.forced.Term != 0 {
		s.axisOf(x, a.forced.Term).add(&a.forced.At)
	}
	if l.term == 0 {
		return
	}
	own.add(&l.after)
	own.add(&l.probed)
	own.add(&l.transferUntil)
	own.add(&l.end)
	for p := range l.peers {
		own.add(&l.peers[p].promised)
	}
}

// squeeze moves the instants of one clock.
func (a *axis) squeeze(widest int) {
	var there [2]uint64
	for _, i := range a.of[:a.n] {
		if *i < 1 || *i > lastInstant {
			panic(fmt.Sprintf("instant %d is beyond what is packed", *i))
		}
		there[*i>>6] |= 1 << (*i & 63)
	}
	var to [lastInstant + 1]uint8
	was, is := -1, 0
	for w := range there {
		for m := there[w]; m != 0; m &= m - 1 {
			at := w<<6 + bits.TrailingZeros64(m)
			if was < 0 {
				is = int(firstInstant)
			} else {
				is += min(at-was, widest)
			}
			was = at
			to[at] = uint8(is)
		}
	}
	for _, i := range a.of[:a.n] {
		*i = Instant(to[*i])
	}
}

// forget drops what can have no consequence any more.
func (s *stage) forget() {
	for i := range s.b.nodes {
		a := &s.actors[i]
		long := a.now - Instant(s.b.widest()) // or longer, as squeeze leaves it
		if a.guard.owed <= long {
			a.guard.owed = 0
		}
		if a.guard.holdUntil <= long {
			a.guard.holdUntil = 0
		}
		if a.lease.term != 0 && a.lease.transferUntil <= long {
			a.lease.transferUntil = 0
		}
		if a.dterm >= a.mailTerm && (a.role != candidate || a.term != a.mailTerm) {
			a.mail, a.mailTerm = 0, 0
		}
	}
	s.forgetLetters()
}

// forgetLetters drops letters that no node would look at any more, and duplicates.
func (s *stage) forgetLetters() {
	for i := range s.b.letters {
		l := &s.letters[i]
		if l.kind == noLetter {
			continue
		}
		to := &s.actors[l.to-1]
		switch {
		case l.kind == probeLetter && l.term < to.dterm,
			l.kind == grantLetter && l.term < to.dterm && to.lease.term != uint64(l.term) && !s.b.late:
			*l = letter{}
		}
		for _, other := range s.letters[:i] {
			if other == *l {
				*l = letter{} // the same twice is the same
			}
		}
	}
}

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
		a.lease.StartOver(a.now)
	}
	a.guard.StartOver(a.now)
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
	a.guard.SetStored(s.b.units(s.b.floor), s.b.maxPromise())
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
				// No node gains anything.
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
