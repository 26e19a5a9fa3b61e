package core

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/internal/explore"
)

// A field that is added to Guard or Lease must be packed, or have no say in what is
// searched.
func TestExplorerKnowsEveryField(t *testing.T) {
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[Guard](): "maxPromise incarnation saved holdUntil holdFor term promise owed release dead",
		reflect.TypeFor[Lease](): "p voters voter term ownCommit after probed shift steps transferUntil clockFault unrenewed " +
			"closed disabled hold confPending diskStalled peers tooFewClocks end",
		reflect.TypeFor[peer]():  "id promised last rate",
		reflect.TypeFor[saved](): "limit longest",
	} {
		var fields []byte
		for f := range of.Fields() {
			fields = append(append(fields, f.Name...), ' ')
		}
		if got := string(bytes.TrimSpace(fields)); got != want {
			t.Errorf("%v has the fields %q, and the explorer packs or projects out %q", of, got, want)
		}
	}
}

// wander takes steps at random and shows each state.
func wander(t *testing.T, b *bounds, steps int, show func(m *stages, state []byte)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	m := newStages(b)
	walks := 8
	if shortened() {
		walks = 1
	}
	for range walks {
		var at []byte
		m.Start(func(state []byte) { at = bytes.Clone(state) })
		for range steps {
			show(m, at)
			var all [][]byte
			m.Expand(at, true, func(_ explore.Step, next []byte, _ explore.Marks) { all = append(all, bytes.Clone(next)) })
			if len(all) == 0 {
				break
			}
			at = all[rng.IntN(len(all))]
		}
	}
}

// What is packed is all there is: it is the same again after unpacking.
func TestExplorerPacksEverything(t *testing.T) {
	for i := range searches {
		b := searches[i]
		wander(t, &b, 60, func(m *stages, state []byte) {
			m.other.unpack(state)
			if got := m.other.pack(nil, m.orders[0]); !bytes.Equal(got, state) {
				t.Fatalf("%s: packed anew\n%v, want\n%v", b.name, got, state)
			}
		})
	}
}

// States that differ by names only are one, and so are those they lead to.
func TestExplorerForgetsNames(t *testing.T) {
	for i := range searches {
		b := searches[i]
		wander(t, &b, 25, func(m *stages, state []byte) {
			want := bytes.Clone(m.Canonical(state))
			o := m.orders[len(state)%len(m.orders)]
			m.other.unpack(state)
			renamed := m.other.pack(nil, o)
			if got := m.Canonical(renamed); !bytes.Equal(got, want) {
				t.Fatalf("%s: renamed by %v the least form is\n%v, want\n%v", b.name, o, got, want)
			}
			if !slices.Equal(m.successors(state, nil), m.successors(renamed, nil)) {
				t.Fatalf("%s: renamed by %v it leads elsewhere", b.name, o)
			}
		})
	}
}

// Moving instants together changes nothing: what a state leads to is the same
// whether it was settled before or not.
func TestExplorerMovesInstantsRightly(t *testing.T) {
	for i := range searches {
		b := searches[i]
		b.apart = true // left as they are
		// A clock that begins anew, or goes back, does so to where the least form says.
		b.budget.crashes, b.budget.backs, b.opening = 0, 0, nil
		settled := b
		settled.apart = false
		m := newStages(&settled)
		wander(t, &b, 30, func(_ *stages, state []byte) {
			m.other.unpack(state)
			m.other.settle()
			together := m.other.pack(nil, m.orders[0])
			apart := newStages(&b)
			if !slices.Equal(m.successors(together, nil), apart.successors(state, m)) {
				t.Fatalf("%s: settled, it leads elsewhere", b.name)
			}
		})
	}
}

// successors returns the least forms of all states that state leads to, settled by
// as, with what is bad marked.
func (m *stages) successors(state []byte, as *stages) (all []string) {
	m.Expand(state, true, func(_ explore.Step, next []byte, marks explore.Marks) {
		c := bytes.Clone(next)
		if as != nil {
			as.other.unpack(c)
			as.other.settle()
			c = as.other.pack(nil, as.orders[0])
		} else {
			as = m
		}
		form := bytes.Clone(as.Canonical(c))
		if as == m {
			as = nil
		}
		if marks&explore.Bad != 0 {
			form = append(form, 'B')
		}
		all = append(all, string(form))
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// order says which node takes each place when a stage is packed.
type order [maxActors]uint8

// place is the inverse: the place of each node.
func (o order) place(n int) (p order) {
	for at := range n {
		p[o[at]] = uint8(at)
	}
	return p
}

// packer writes one stage with its nodes in some order.
type packer struct {
	s     *stage
	n     int
	place order
	b     []byte
}

func (p *packer) put(v ...uint8) { p.b = append(p.b, v...) }

func (p *packer) instant(i Instant) {
	if i == Forever {
		i = 255
	}
	p.b = append(p.b, uint8(i))
}

// id returns the name that a node gets, 0 for none.
func (p *packer) id(id uint8) uint8 {
	if id == 0 {
		return 0
	}
	return p.place[id-1] + 1
}

func (p *packer) set(v voters8) (out uint8) {
	for i := range p.n {
		out |= uint8(v>>i&1) << p.place[i]
	}
	return out
}

func bit(b bool, at int) uint8 {
	if b {
		return 1 << at
	}
	return 0
}

// pack appends the stage to b, its nodes in the given order.
func (s *stage) pack(b []byte, o order) []byte {
	p := packer{s: s, n: s.b.nodes, place: o.place(s.b.nodes), b: b}
	l := &s.left
	p.put(l.crashes|l.transfers<<2|l.jumps<<4|l.backs<<6, l.changes|l.resigns<<4|l.deaths<<6)
	for t := 1; t <= s.b.terms; t += 2 {
		p.put(p.id(s.led[t]) | p.id(s.led[t+1])<<4)
	}
	for at := range p.n {
		p.actor(&s.actors[o[at]], o)
	}
	p.letters()
	return p.b
}

func (p *packer) actor(a *actor, o order) {
	p.put(a.dterm|a.term<<4, p.id(a.dvote)|p.id(a.vote)<<4,
		uint8(a.role)|bit(a.asking, 2)|bit(a.guard.holdFor > 0, 3)|a.mailTerm<<4, p.set(a.got), p.set(a.mail))
	if p.s.b.budget.changes > 0 {
		p.log(&a.log)
	}
	p.instant(a.now)
	p.guard(&a.guard, a.forced)
	if p.s.b.budget.deaths > 0 {
		p.processes(a)
	}
	if g := &a.guard.saved; p.s.b.floor > 0 {
		p.put(uint8(g.limit)|uint8(g.longest)<<4, a.disk|a.saving<<4)
	}
	p.lease(&a.lease, o)
	for at := range p.n {
		d := a.drift[o[at]]
		p.put(uint8(d), uint8(d>>8))
	}
}

func (p *packer) log(l *logs) {
	p.put(l.last|l.n<<4, l.committed|l.applied<<4)
	for _, c := range l.changes[:p.s.b.budget.changes] {
		p.put(c.term, p.set(c.in), p.set(c.out))
	}
}

func (p *packer) guard(g *Guard, forced Release) {
	p.put(uint8(g.term), p.id(uint8(g.promise.leader))|uint8(g.promise.term)<<4, uint8(g.release.Term)|uint8(forced.Term)<<4)
	p.instant(g.holdUntil)
	p.instant(g.promise.sent)
	p.instant(g.promise.until)
	p.instant(g.owed)
	p.instant(g.release.At)
	p.instant(forced.At)
}

func (p *packer) lease(l *Lease, o order) {
	p.put(uint8(l.term) | bit(l.ownCommit, 4) | bit(l.clockFault, 5) | bit(l.unrenewed, 6) | bit(l.confPending, 7))
	p.instant(l.after)
	p.instant(l.probed)
	p.instant(l.transferUntil)
	p.instant(l.end)
	p.put(uint8(l.shift), uint8(l.steps)|bit(l.closed, 7))
	for at := range p.n {
		var promised Instant
		if peer := l.peer(uint64(o[at]) + 1); peer != nil {
			promised = peer.promised
		}
		p.instant(promised)
	}
}

// letters are packed in an order that does not depend on their places.
func (p *packer) letters() {
	var all [maxLetters][4]byte
	n := p.s.b.letters
	for i := range n {
		l := &p.s.letters[i]
		w := [4]byte{uint8(l.kind)<<4 | l.term, p.id(l.from)<<4 | p.id(l.to), uint8(l.at), l.of}
		at := i
		for at > 0 && bytes.Compare(w[:], all[at-1][:]) < 0 {
			all[at] = all[at-1]
			at--
		}
		all[at] = w
	}
	for i := range n {
		p.b = append(p.b, all[i][:]...)
	}
}

// unpacker reads what packer has written.
type unpacker struct{ b []byte }

func (u *unpacker) get() uint8 {
	v := u.b[0]
	u.b = u.b[1:]
	return v
}

func (u *unpacker) two() (lo, hi uint8) {
	v := u.get()
	return v & 15, v >> 4
}

func (u *unpacker) instant() Instant {
	if v := u.get(); v != 255 {
		return Instant(v)
	}
	return Forever
}

// unpack makes the stage what b says.
func (s *stage) unpack(b []byte) {
	u := &unpacker{b}
	v := u.get()
	changes, more := u.two()
	s.left = budget{v & 3, v >> 2 & 3, v >> 4 & 3, v >> 6, changes, more & 3, more >> 2}
	for t := 1; t <= s.b.terms; t += 2 {
		s.led[t], s.led[t+1] = u.two()
	}
	for i := range s.b.nodes {
		s.unpackActor(u, i)
	}
	for i := range s.b.letters {
		l := &s.letters[i]
		v := u.get()
		l.kind, l.term = letterKind(v>>4), v&15
		l.to, l.from = u.two()
		l.at = u.instant()
		l.of = u.get()
	}
	s.marks = 0
}

func (s *stage) unpackActor(u *unpacker, i int) {
	a := &s.actors[i]
	a.dterm, a.term = u.two()
	a.dvote, a.vote = u.two()
	v, mailTerm := u.two()
	a.role, a.asking, a.mailTerm = role(v&3), v>>2&1 != 0, mailTerm
	a.got, a.mail = voters8(u.get()), voters8(u.get())
	if s.b.budget.changes > 0 {
		u.log(&a.log, s.b)
	}
	a.conf = s.b.conf(&a.log)
	a.now = u.instant()
	s.unpackGuard(u, a)
	if s.b.budget.deaths > 0 {
		u.processes(a)
	}
	if v>>3 != 0 {
		a.guard.holdFor = s.b.maxPromise()
	}
	s.unpackSaved(u, a)
	s.unpackLease(u, i)
	for j := range s.b.nodes {
		a.drift[j] = drift(u.get()) | drift(u.get())<<8
	}
}

func (u *unpacker) log(l *logs, b *bounds) {
	l.last, l.n = u.two()
	l.committed, l.applied = u.two()
	for i := range b.budget.changes {
		l.changes[i] = change{u.get(), voters8(u.get()), voters8(u.get())}
	}
}

func (s *stage) unpackGuard(u *unpacker, a *actor) {
	g := &a.guard
	*g = Guard{maxPromise: s.b.maxPromise(), incarnation: 1, term: uint64(u.get())}
	leader, term := u.two()
	g.promise.leader, g.promise.term = uint64(leader), uint64(term)
	if leader != 0 {
		g.promise.duration = s.b.asks(term)
	}
	rel, forced := u.two()
	g.holdUntil = u.instant()
	g.promise.sent, g.promise.until, g.owed = u.instant(), u.instant(), u.instant()
	g.release = Release{uint64(rel), u.instant()}
	a.forced = Release{uint64(forced), u.instant()}
}

func (s *stage) unpackSaved(u *unpacker, a *actor) {
	longest := s.b.maxPromise()
	if s.b.floor == 0 {
		a.guard.SetStored(longest, longest)
		return
	}
	limit, wanted := u.two()
	a.guard.saved = saved{limit: s.b.units(int(limit)), longest: s.b.units(int(wanted))}
	a.disk, a.saving = u.two()
}

func (s *stage) unpackLease(u *unpacker, i int) {
	a := &s.actors[i]
	v := u.get()
	known := s.confs.of(a.conf)
	if s.b.flaw == votersNotTold {
		known = s.confs.of(s.b.first())
	}
	a.lease = Lease{
		p: s.b.params(uint64(i+1), v&15), voters: known.cfg, voter: isVoter(known.cfg, uint64(i+1)),
		term: uint64(v & 15), ownCommit: v>>4&1 != 0, clockFault: v>>5&1 != 0, unrenewed: v>>6&1 != 0, confPending: v>>7 != 0,
		after: u.instant(), probed: u.instant(), transferUntil: u.instant(), end: u.instant(),
		shift: time.Duration(u.get()),
	}
	steps := u.get()
	a.lease.steps, a.lease.closed = int(steps&127), steps>>7 != 0
	var promised [maxActors]Instant
	for j := range s.b.nodes {
		promised[j] = u.instant()
	}
	n := 0
	for _, id := range known.ids {
		if id != uint64(i+1) {
			a.peers[n] = peer{id: id, promised: promised[id-1]}
			n++
		}
	}
	a.lease.peers = a.peers[:n]
}
