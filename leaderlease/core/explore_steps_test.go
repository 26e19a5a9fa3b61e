package core

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/leaderlease/go/leaderlease/internal/explore"
)

// stages is the model that is searched.
type stages struct {
	b *bounds
	// here is the stage that is expanded, next the one that a step makes of it, and
	// other is for Canonical and Describe.
	here, next, other stage
	orders            []order
	confs             confTable
	best, tried       []byte
	yield             func(explore.Step, []byte, explore.Marks)
	plain             bool
}

func newStages(b *bounds) *stages {
	m := &stages{b: b, orders: orders(b.nodes, b.nodes-b.learners)}
	if b.named {
		m.orders = m.orders[:1]
	}
	for _, s := range []*stage{&m.here, &m.next, &m.other} {
		s.b, s.confs = b, &m.confs
	}
	return m
}

// orders returns every order of n nodes of which the first vote at first: these stay
// among themselves.
func orders(n, vote int) (all []order) {
	var o order
	var permute func(k int, used voters8)
	permute = func(k int, used voters8) {
		if k == n {
			all = append(all, o)
			return
		}
		for i := range n {
			if !used.has(i) && (i < vote) == (k < vote) {
				o[k] = uint8(i)
				permute(k+1, used|one(i))
			}
		}
	}
	permute(0, 0)
	return all
}

// Start implements explore.Model.
func (m *stages) Start(yield func([]byte)) {
	s := &m.next
	*s = stage{b: m.b, confs: &m.confs, left: m.b.budget}
	for i := range m.b.nodes {
		a := &s.actors[i]
		a.conf, a.disk = m.b.first(), uint8(m.b.saved)
		if m.b.settled {
			a.dterm, a.dvote, a.log.last = 1, 1, 1
		}
		s.begin(i)
	}
	if m.b.settled {
		for i := range m.b.nodes {
			a := &s.actors[i]
			a.guard.hold, a.drift = 0, [maxActors]drift{} // long ago
		}
		s.led[1] = 1
	}
	switch {
	case m.b.late:
		s.letters[0] = letter{kind: grantLetter, from: 2, to: 1, term: 1, at: firstInstant + 1}
	case m.b.settled:
		s.actors[0].role = leads
		s.actors[0].lease.p = s.b.params(1, 1)
		s.actors[0].lease.Lead(1, s.actors[0].now)
	}
	for i := range m.b.nodes {
		if m.b.apart {
			s.actors[i].shift(Instant(2 * m.b.d * i))
		}
	}
	s.open()
	s.settle()
	yield(s.pack(nil, m.orders[0]))
}

// open takes the steps that every schedule begins with.
func (s *stage) open() {
	for i, st := range s.b.opening {
		post, ok := s.take(st)
		if !ok {
			panic(fmt.Sprintf("step %d of the opening cannot be taken", i))
		}
		if post.kind != noLetter {
			s.letters[0] = post
		}
		s.soon()
	}
	s.marks = 0
}

// Canonical implements explore.Model.
func (m *stages) Canonical(state []byte) []byte {
	m.other.unpack(state)
	return m.least(&m.other)
}

// least packs s in each order that could be the least, and returns what is.
func (m *stages) least(s *stage) []byte {
	if m.b.named {
		m.best = s.pack(m.best[:0], m.orders[0])
		return m.best
	}
	var sums [maxActors]uint64
	for i := range m.b.nodes {
		sums[i] = s.actors[i].sum()
	}
	m.best = m.best[:0]
	for _, o := range m.orders {
		if !m.b.ascends(&sums, o) {
			continue
		}
		m.tried = s.pack(m.tried[:0], o)
		if len(m.best) == 0 || bytes.Compare(m.tried, m.best) < 0 {
			m.best, m.tried = m.tried, m.best
		}
	}
	return m.best
}

// ascends reports whether voters and learners are each in the order of their sums.
func (b *bounds) ascends(sums *[maxActors]uint64, o order) bool {
	for at := range b.nodes - 1 {
		if sums[o[at]] > sums[o[at+1]] && at+1 != b.nodes-b.learners {
			return false
		}
	}
	return true
}

// sum is the same for nodes that differ in what they are called only.
func (a *actor) sum() (sum uint64) {
	g, l := &a.guard, &a.lease
	for _, v := range [...]uint64{
		uint64(a.role), uint64(a.term), uint64(a.dterm), l.term, g.promise.term, uint64(a.now),
		uint64(g.promise.until), uint64(g.promise.sent), uint64(g.hold), uint64(l.end), uint64(l.after), g.release.Term,
	} {
		sum = (sum ^ v) * 0x9e3779b97f4a7c15
		sum ^= sum >> 29
	}
	return sum
}

// Expand implements explore.Model.
func (m *stages) Expand(state []byte, plain bool, yield func(explore.Step, []byte, explore.Marks)) {
	m.here.unpack(state)
	m.yield, m.plain = yield, plain
	n := uint8(m.b.nodes)
	for i := range n {
		for k := range firstPair {
			m.try(explore.Step{Kind: uint8(k), A: i})
		}
		for j := range n {
			for k := firstPair; k < firstLetter && i != j; k++ {
				m.try(explore.Step{Kind: uint8(k), A: i, B: j})
			}
		}
	}
	m.try(explore.Step{Kind: uint8(doPass)})
	for i := range n {
		for in := uint8(1); in < 1<<n && m.here.left.changes > 0; in++ {
			m.try(explore.Step{Kind: uint8(doPropose), A: i, B: in})
		}
	}
	for i := range m.b.letters {
		switch m.here.letters[i].kind {
		case noLetter:
			continue
		case probeLetter:
			m.try(explore.Step{Kind: uint8(doAnswer), A: uint8(i)})
		case handoverLetter:
			m.try(explore.Step{Kind: uint8(doTakeOver), A: uint8(i)})
		}
		m.try(explore.Step{Kind: uint8(doDeliver), A: uint8(i)})
	}
}

// try takes a step, and yields the stage it leads to, or each of them.
func (m *stages) try(st explore.Step) {
	if !m.here.may(st) {
		return
	}
	s := &m.next
	s.copy(&m.here)
	post, ok := s.take(st)
	if !ok {
		return
	}
	if post.kind == noLetter {
		m.emit(st)
		return
	}
	free := slices.IndexFunc(s.letters[:m.b.letters], func(l letter) bool { return l.kind == noLetter })
	if free >= 0 {
		s.letters[free] = post
		m.emit(st)
		return
	}
	for at := range m.b.letters {
		if at > 0 {
			s.copy(&m.here)
			s.take(st)
		}
		st.C = uint8(at)
		s.letters[at] = post
		m.emit(st)
	}
}

func (m *stages) emit(st explore.Step) {
	s := &m.next
	s.soon()
	if s.judge() {
		s.marks |= explore.Bad
	}
	s.settle()
	if m.plain {
		m.tried = s.pack(m.tried[:0], m.orders[0])
		m.yield(st, m.tried, s.marks)
		return
	}
	m.yield(st, m.least(s), s.marks)
}

func (s *stage) copy(from *stage) {
	n := s.b.nodes
	copy(s.actors[:n], from.actors[:n])
	for i := range n {
		s.actors[i].lease.peers = s.actors[i].peers[:len(from.actors[i].lease.peers)]
	}
	s.letters, s.led, s.left, s.marks = from.letters, from.led, from.left, 0
}
