package core

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/internal/explore"
)

// stages is the model that is searched.
type stages struct {
	b *bounds
	// here is the stage that is expanded, next the state that a step makes of it, and
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
			a.guard.holdUntil, a.drift = 0, [maxActors]drift{} // long ago
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
		uint64(g.promise.until), uint64(g.promise.sent), uint64(g.holdUntil), uint64(l.end), uint64(l.after), g.release.Term,
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

// The explorer searches every schedule of a small group, within bounds: the real
// Guard and Lease of each node, and around them an election reduced to what a lease
// depends on. A stage is one state of it. What is left out, and what the bounds are,
// is in docs/explorer.md.
type stage struct {
	b *bounds
	// actors are the nodes, with IDs from 1 on.
	actors [maxActors]actor
	// letters are under way. One that has arrived stays, since it may arrive again;
	// one is lost when another takes its place.
	letters [maxLetters]letter
	// led has the winner of each term. It is a ghost: no node knows all of it.
	led [maxTerms + 1]uint8
	// left is what may still happen of each kind of trouble.
	left budget
	// marks are the goals that the newest step has reached.
	marks explore.Marks

	confs *confTable
	axes  axes // of settle
}

const (
	maxActors  = 5
	maxLetters = 4
	maxTerms   = 4
)

// actor is one node: its disk, its process and its clock.
type actor struct {
	// dterm and dvote are on the disk. The others are lost in a crash.
	dterm, dvote, term, vote uint8
	role                     role
	// asking: a candidate's requests for votes may leave, since it was not bound when
	// it made them (V4), and so may its own vote (V5).
	asking bool
	// got are the nodes that have voted for this candidate, as far as it knows.
	got voters8
	// forced is the release of a candidacy that a transfer has caused.
	forced Release
	// mail are the nodes that have voted for this node in the term mailTerm, whether it knows or
	// not: the answers are under way, and arrive in any order, once more, or never.
	mail     voters8
	mailTerm uint8
	// log is on the disk, and so is conf, the configuration that was applied of it.
	log  logs
	conf conf
	// disk is the longest promise that is saved, saving what it is to be, 0 if nothing is
	// under way.
	disk, saving uint8

	now   Instant
	guard Guard
	lease Lease
	peers [maxActors]peer // of lease
	// run counts the processes before this one, where deaths are reported.
	run uint8

	// drift has, for each leader, what its clock may still gain or lose on the
	// promises that this node has made to it; see drift.
	drift [maxActors]drift
}

type role uint8

const (
	follower role = iota
	candidate
	leads
)

// voters8 is a set of nodes, a bit each.
type voters8 uint8

func (v voters8) has(i int) bool { return v>>i&1 != 0 }

func one(i int) voters8 { return 1 << i }

// conf is a configuration.
type conf struct{ in, out, learn voters8 }

func (c conf) votes(i int) bool { return (c.in | c.out).has(i) }

// wins reports whether the nodes in v are a quorum. It shares nothing with the
// quorum package.
func (c conf) wins(v voters8) bool { return half(c.in, v) && (c.out == 0 || half(c.out, v)) }

func half(of, v voters8) bool { return 2*count8(of&v) > count8(of) }

func count8(v voters8) (n int) {
	for ; v != 0; v &= v - 1 {
		n++
	}
	return n
}

// letter is a message under way.
type letter struct {
	kind     letterKind
	from, to uint8
	term     uint8
	// at is what it says: the instant that a probe was sent at, that a grant answers,
	// or that a release names.
	at Instant
	// of is the term of the release in a forced request for a vote, and the process of a probe, from 1 on.
	of uint8
}

type letterKind uint8

const (
	noLetter letterKind = iota
	probeLetter
	grantLetter
	handoverLetter // MsgTimeoutNow
	forcedLetter   // MsgVote that a transfer has caused
)

// budget bounds how often something happens in one run.
type budget struct{ crashes, transfers, jumps, backs, changes, resigns, deaths uint8 }

// bounds are what is searched.
type bounds struct {
	name string
	// nodes of the group; all of them vote at first but learners.
	nodes, learners int
	// d, skew and transfer are the parameters, in units of the clocks.
	d, skew, transfer int
	// longest is the longest promise that a node makes, d if 0.
	longest int
	// floor is what leaders of even terms ask for, and what is saved falls to; 0 if all ask
	// for d and nothing is saved. saved is what is saved at first.
	floor, saved int
	// turns are what leaders of the first term ask for, of the second and of the third, and of
	// the fourth again; of zeros if there are two durations.
	turns          [3]int
	terms, letters int
	budget         budget
	// settled begins with node 1 as leader of term 1, known to all and durable.
	settled bool
	// opening is what happens first, as one step.
	opening []explore.Step
	// boundCampaigns: raft campaigns also while the node is bound, and nothing leaves.
	boundCampaigns bool
	// apart lets the clocks begin far apart and leaves them so: for a rule that mixes
	// them up, which must not be helped by moving them together.
	apart bool
	// still lets no clock move.
	still bool
	// late begins without a leader, and with a grant of a term that has ended under
	// way to the leader of then, by a clock that has begun anew since.
	late bool
	// named tells states apart that differ by the names of nodes only: for a rule that
	// does.
	named  bool
	flaw   blunder
	limits explore.Limits
}

func (b *bounds) units(n int) time.Duration { return time.Duration(n) }

func (b *bounds) maxPromise() time.Duration { return b.units(cmp.Or(b.longest, b.d)) }

// widest is more than what is ever added to an instant, so gaps that are wider are
// the same.
func (b *bounds) widest() int { return max(b.d, b.transfer) + b.skew + 2 + int(2*b.budget.backs) }

// first is the configuration of a new group.
func (b *bounds) first() conf {
	return conf{in: 1<<(b.nodes-b.learners) - 1, learn: (1<<b.nodes - 1) &^ (1<<(b.nodes-b.learners) - 1)}
}

// asks is the promise that the leader of a term asks for.
func (b *bounds) asks(term uint8) time.Duration {
	switch {
	case b.turns[0] > 0:
		return b.units(b.turns[(term+2)%3])
	case b.floor > 0 && term%2 == 0:
		return b.units(b.floor)
	default:
		return b.units(b.d)
	}
}

func (b *bounds) params(id uint64, term uint8) Params {
	return Params{ID: id, Duration: b.asks(term), MaxClockSkew: time.Duration(b.skew), TransferTimeout: time.Duration(b.transfer)}
}

// confTable keeps what a configuration looks like to the library: by Voters, the
// real one.
type confTable [1 << maxActors][1 << maxActors][1 << maxActors]*libConf

type libConf struct {
	cfg quorum.JointConfig
	ids []uint64
}

func (t *confTable) of(c conf) *libConf {
	at := &t[c.in][c.out][c.learn]
	if *at == nil {
		cfg := Voters(&raftpb.ConfState{Voters: ids(c.in), VotersOutgoing: ids(c.out), Learners: ids(c.learn)})
		*at = &libConf{cfg, sortedVoters(cfg)}
	}
	return *at
}

func ids(v voters8) (ids []uint64) {
	for i := range maxActors {
		if v.has(i) {
			ids = append(ids, uint64(i+1))
		}
	}
	return ids
}
