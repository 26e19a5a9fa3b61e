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
	own.add(&g.hold)
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
		if a.guard.hold <= long {
			a.guard.hold = 0
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

// forgetLetters takes away what nobody would look at any more, and what is there twice.
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
