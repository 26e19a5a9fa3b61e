package core

import (
	"github.com/leaderlease/go/leaderlease/internal/explore"
)

// What the library does around Guard and Lease, as docs/design.md has it.

func (s *stage) setVoters(i int) {
	a := &s.actors[i]
	a.lease.SetVoters(s.confs.of(a.conf).cfg)
}

// probe returns the heartbeat that leader i sends to j (L1).
func (s *stage) probe(i, j int) (letter, bool) {
	a := &s.actors[i]
	if i == j || a.role != leads {
		return letter{}, false
	}
	p, ok := a.lease.Probe(a.now)
	if !ok {
		return letter{}, false
	}
	return letter{kind: probeLetter, from: uint8(i + 1), to: uint8(j + 1), term: a.term, at: p.Sent, of: s.named(i)}, true
}

// promise has node j answer the probe of a heartbeat, before raft sees it (V1).
func (s *stage) promise(i, j int, l letter) {
	v := &s.actors[j]
	switch {
	case l.at == 0: // no probe
	case v.guard.Promise(uint64(l.from), uint64(l.term), Probe{Sent: l.at, Duration: s.b.asks(l.term)}, process(l.from, l.of), v.now):
		v.drift[i] = v.drift[i].opened(s.b)
		if v.guard.InRestartHold(v.now) {
			s.reach(goalHeldGrants)
		}
		if s.b.floor > 0 && s.b.asks(l.term) > s.b.units(s.b.floor) {
			s.reach(goalRaised)
		}
	case uint64(l.term) == v.guard.release.Term && l.term >= v.term:
		s.reach(goalLateProbe)
	}
}

// hear lets a heartbeat arrive: the promise first, then raft. It returns the
// answer that leaves, if it carries a grant (V2).
func (s *stage) hear(l letter) (letter, bool) {
	i, j := int(l.from-1), int(l.to-1)
	v := &s.actors[j]
	known := v.guard.promise
	s.promise(i, j, l)
	if l.term < v.term {
		return letter{kind: grantLetter, from: l.to, to: l.from, term: l.term, at: l.at}, s.b.flaw == echo
	}
	if l.term > v.term || v.role == candidate {
		s.follow(j, l.term)
	}
	if v.role != follower || v.dterm == 0 {
		return letter{}, false // a first grant waits for a term on the disk (V6)
	}
	g, ok := v.guard.Grant(uint64(l.from), uint64(l.term), v.now)
	if s.b.flaw == echo {
		g.Sent, ok = l.at, l.at > 0
	}
	if ok && known.term != 0 && known.term < uint64(l.term) && known.leader == uint64(l.from) {
		s.reach(goalLaterTerm)
	}
	return letter{kind: grantLetter, from: l.to, to: l.from, term: l.term, at: g.Sent}, ok
}

// grant lets a grant arrive at the leader (L2).
func (s *stage) grant(l letter) {
	a := &s.actors[l.to-1]
	if l.term > a.term {
		s.follow(int(l.to-1), l.term)
	}
	g := Grant{Sent: l.at, Duration: s.b.asks(l.term)}
	if s.b.flaw == fromArrival {
		g.Sent = a.now
	}
	end := a.lease.end
	if a.lease.Count(uint64(l.from), uint64(l.term), g, a.now) {
		s.reach(goalRenewed)
	}
	if *exploreRules && a.lease.end < end {
		s.marks |= explore.Bad // L2 by itself: no grant shortens a lease
	}
}

// handOver makes the leader i give its lease up for j (L6).
func (s *stage) handOver(i, j int) (letter, bool) {
	a := &s.actors[i]
	if i == j || a.role != leads || s.left.transfers == 0 || !a.conf.votes(j) {
		return letter{}, false
	}
	s.left.transfers--
	r := Release{Term: uint64(a.term), At: a.now}
	if s.b.flaw != leaseKept {
		r = a.lease.Release(a.now)
	}
	return letter{kind: handoverLetter, from: uint8(i + 1), to: uint8(j + 1), term: a.term, at: r.At}, true
}

// resign makes the leader i hand its promises back in favour of j, past raft, and go on or
// not (L6b).
func (s *stage) resign(i, j int) (letter, bool) {
	a := &s.actors[i]
	if i == j || s.left.resigns == 0 || !a.conf.votes(j) {
		return letter{}, false
	}
	s.left.resigns--
	// A follower's clock, of the flaw, is as far as that of its leader.
	r := Release{Term: uint64(a.term), At: s.actors[s.led[a.term]-1].now}
	if a.role == leads && s.b.flaw != resignedLeads {
		a.lease.Close()
		r = a.lease.Release(a.now)
	}
	return letter{kind: handoverLetter, from: uint8(i + 1), to: uint8(j + 1), term: a.term, at: r.At}, true
}

// takeOver lets a MsgTimeoutNow arrive (V3).
func (s *stage) takeOver(l letter) {
	j := int(l.to - 1)
	if !s.admit(j, Release{Term: uint64(l.term), At: l.at}) || l.term < s.actors[j].term {
		return
	}
	if l.term > s.actors[j].term {
		s.follow(j, l.term)
	}
	s.campaign(j, true)
}

// deliver lets a letter arrive and returns the answer, if it has one.
func (s *stage) deliver(l letter) (letter, bool) {
	switch l.kind {
	case probeLetter:
		return s.hear(l)
	case grantLetter:
		s.grant(l)
	case handoverLetter:
		s.takeOver(l)
	case forcedLetter:
		s.vote(l.from, l.term, Release{Term: uint64(l.of), At: l.at}, int(l.to-1))
	}
	return letter{}, false
}

// forcedVote returns a request of a forced candidacy that is to arrive later, maybe
// when the candidacy is over: its release is true for ever.
func (s *stage) forcedVote(i, j int) (letter, bool) {
	a := &s.actors[i]
	if !s.mayAsk(i, j) || a.forced == (Release{}) {
		return letter{}, false
	}
	return letter{kind: forcedLetter, from: uint8(i + 1), to: uint8(j + 1), term: a.term, at: a.forced.At, of: uint8(a.forced.Term)}, true
}

// judge looks for what must not be: the claim of docs/design.md, literally. A view
// that passes its check, while another node has won an election in a later term; and what
// it is for: a leader with a valid view and a commit index that lacks an entry that is
// known to be committed.
func (s *stage) judge() (bad bool) {
	last := uint64(0)
	for t, who := range s.led {
		if who != 0 {
			last = uint64(t)
		}
	}
	bad = *exploreRules && s.forgets()
	for i := range s.b.nodes {
		a := &s.actors[i]
		if a.lease.term == 0 {
			continue
		}
		v := a.lease.View(a.now)
		switch v.Check(a.now) {
		case Valid:
			bad = bad || v.Term < last || s.lacks(a.log.committed) || (*exploreRules && !a.outvotes(i))
			s.valid(i, v.Term)
		case Margin:
			s.reach(goalMargin)
		case Expired:
			if v.Term < last {
				s.reach(goalOvertaken)
			}
		}
	}
	return bad
}

// forgets reports whether a process that began now would hold for less than is left of
// a promise: V6 by itself, where no other node needs to do anything about it.
func (s *stage) forgets() bool {
	for i := range s.b.nodes {
		a := &s.actors[i]
		if s.b.floor > 0 && a.guard.promise.until.Sub(a.now) > s.b.units(int(a.disk)) {
			return true
		}
	}
	return false
}

// outvotes reports whether the promises that the lease of node i still has, and the
// node itself, are a quorum of the configuration that it has applied: L3 by itself,
// where a pending change stands in for it (L5).
func (a *actor) outvotes(i int) bool {
	with := one(i)
	for p := range a.lease.peers {
		if p := &a.lease.peers[p]; p.promised.Add(-a.lease.p.MaxClockSkew) > a.now {
			with |= one(int(p.id - 1))
		}
	}
	return a.conf.wins(with)
}

// lacks reports whether another node knows of more committed changes.
func (s *stage) lacks(committed uint8) bool {
	for i := range s.b.nodes {
		if s.actors[i].log.committed > committed {
			return true
		}
	}
	return false
}

func (s *stage) valid(i int, term uint64) {
	s.reach(goalLease)
	if l := &s.actors[i].lease; l.end == Forever {
		s.reach(goalSole)
	} else if s.actors[i].now-l.probed >= Instant(s.b.asks(uint8(term))-s.b.units(s.b.skew+1)) {
		s.reach(goalLong)
	}
	if s.actors[i].lease.transferUntil != 0 {
		s.reach(goalAborted)
	}
	for t := range term {
		if who := s.led[t]; who != 0 && who != uint8(i+1) {
			s.reach(goalSecond)
		}
	}
}

// save begins to write another longest promise, or has the disk hold it, or tells that it
// does: a crash may come between.
func (s *stage) save(k action, i int) bool {
	a := &s.actors[i]
	switch {
	case k == doSave && a.saving == 0:
		d, ok := a.guard.BeginSave(a.now)
		a.saving = uint8(d)
		if ok && a.saving < a.disk {
			s.reach(goalLowered)
		}
		return ok
	case k == doWrite && a.saving != 0 && a.saving != a.disk:
		a.disk = a.saving
		return true
	case k == doSaved && a.saving != 0 && a.saving == a.disk:
		a.guard.Saved(s.b.units(int(a.saving)))
		a.saving = 0
		return true
	}
	return false
}

// Configurations: a log of changes, reduced to what decides elections and
// quorums. The other entries of a leader's term are as if they were one, its
// first. A log and what was applied of it are durable at once.

// logs is the part of a node's log that matters.
type logs struct {
	// last is the term of the newest entry, n the number of changes in the log.
	last, n uint8
	changes [maxChanges]change
	// Of the changes, so many are known to be committed, and applied.
	committed, applied uint8
}

const maxChanges = 3

// change is a configuration, proposed in a term.
type change struct {
	term    uint8
	in, out voters8
}

// newer reports whether a voter with log l refuses a candidate with log c.
func (l *logs) newer(c *logs) bool { return l.last > c.last || (l.last == c.last && l.n > c.n) }

// conf is the applied configuration. Nodes that are no voters are learners.
func (b *bounds) conf(l *logs) conf {
	if l.applied == 0 {
		return b.first()
	}
	c := l.changes[l.applied-1]
	return conf{in: c.in, out: c.out, learn: (1<<b.nodes - 1) &^ (c.in | c.out)}
}

// propose lets leader i append a change to the voters in, through a joint
// configuration if more than one comes or goes; or leave the joint one it is in.
// Raft waits until the change before is applied.
func (s *stage) propose(i int, in voters8) bool {
	a := &s.actors[i]
	if a.role != leads || s.left.changes == 0 || a.log.n != a.log.applied {
		return false
	}
	next := change{term: a.term, in: in}
	switch {
	case a.conf.out != 0:
		if in != a.conf.in {
			return false
		}
	case in == a.conf.in:
		return false
	case count8(in^a.conf.in) > 1:
		next.out = a.conf.in
		s.reach(goalJoint)
	}
	s.left.changes--
	a.log.changes[a.log.n] = next
	a.log.n++
	return true
}

// replicate brings the log of leader i to j.
func (s *stage) replicate(i, j int) bool {
	a, v := &s.actors[i], &s.actors[j]
	if a.role != leads || i == j || v.term > a.term {
		return false
	}
	if v.term < a.term || v.role == candidate {
		s.follow(j, a.term)
	}
	applied := v.log.applied
	v.log = a.log
	v.log.applied = applied
	s.handedOut(j)
	s.durable(j)
	return true
}

// catchUp brings the log of leader i to j, which applies what is committed.
func (s *stage) catchUp(i, j int) bool {
	ok := s.replicate(i, j)
	for s.apply(j) {
		continue
	}
	return ok
}

// commitChanges tells leader i which of its changes are committed.
func (s *stage) commitChanges(i int) bool {
	a := &s.actors[i]
	if a.role != leads {
		return false
	}
	for n := a.log.n; n > a.log.committed; n-- {
		if a.conf.wins(s.have(a.term, n)) {
			a.log.committed = n
			s.handedOut(i)
			return true
		}
	}
	return false
}

// have returns the nodes with the first n changes of a term's leader.
func (s *stage) have(term, n uint8) (v voters8) {
	for j := range s.b.nodes {
		if l := &s.actors[j].log; l.last == term && l.n >= n {
			v |= one(j)
		}
	}
	return v
}

// handedOut tells the lease of node i that changes are committed (L5).
func (s *stage) handedOut(i int) {
	l := &s.actors[i].log
	s.actors[i].lease.SetConfPending(l.committed > l.applied && s.b.flaw != pendingNotTold)
}

// apply lets node i switch to the next configuration (L5). A leader that has no vote
// in it steps down.
func (s *stage) apply(i int) bool {
	a := &s.actors[i]
	if a.log.applied >= a.log.committed {
		return false
	}
	a.log.applied++
	a.conf = s.b.conf(&a.log)
	if s.b.flaw != votersNotTold {
		s.setVoters(i)
	}
	s.handedOut(i)
	if a.role == leads {
		s.reach(goalReconfigured)
		if !a.conf.votes(i) {
			s.follow(i, a.term)
		}
	}
	return true
}

// Processes have names where deaths are reported (V8), and none elsewhere. A process
// is dead if its node has begun another.

// process is the ID of a node's process, by its number from 1 on. Number 0 is an unknown process.
func process(id, number uint8) ProcessID {
	if number == 0 {
		return ProcessID{}
	}
	return ProcessID{id, number}
}

// named is the number of node i's process.
func (s *stage) named(i int) uint8 {
	if s.b.budget.deaths == 0 {
		return 0
	}
	return s.actors[i].run + 1
}

// bury tells node i of the newest process of node j that has died. It may campaign then, soon,
// late or more than once, by the letter that is returned.
func (s *stage) reportDeath(i, j int) (letter, bool) {
	v, number := &s.actors[i], s.actors[j].run
	if s.b.flaw == livingReportedDead {
		number++
	}
	if i == j || number == 0 || s.left.deaths == 0 {
		return letter{}, false
	}
	s.left.deaths--
	bound := v.guard.promise.until > v.now
	rel, void := v.guard.ProcessDied(uint64(j+1), process(uint8(j+1), number))
	switch {
	case bound && void:
		s.reach(goalVoided)
	case bound && v.guard.promise.leader == uint64(j+1):
		s.reach(goalFormer)
	}
	if !void || v.guard.Bound(v.now) {
		return letter{}, true
	}
	return letter{kind: handoverLetter, from: uint8(j + 1), to: uint8(i + 1), term: uint8(rel.Term), at: rel.At}, true
}

// processes packs what names processes. No more die than are packed.
func (p *packer) processes(a *actor) {
	p.put(a.run | (a.guard.promise.process[1]&15)<<4)
	for _, d := range a.guard.dead[:3] {
		p.put(p.id(uint8(d.member)) | (d.process[1]&15)<<4)
	}
}

func (u *unpacker) processes(a *actor) {
	var number uint8
	a.run, number = u.two()
	a.guard.promise.process = process(uint8(a.guard.promise.leader), number)
	for i := range 3 {
		id, number := u.two()
		a.guard.dead[i] = deadProcess{uint64(id), process(id, number)}
	}
}
