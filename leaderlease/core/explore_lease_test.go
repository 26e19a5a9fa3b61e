package core

import "github.com/leaderlease/go/leaderlease/internal/explore"

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
		if v.guard.Held(v.now) {
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
// that passes its check, while somebody has won an election in a later term; and what
// it is for: a leader whose view passes and whose commit index lacks an entry that is
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

// lacks reports whether anybody knows of more changes that are committed.
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
		d, ok := a.guard.Save(a.now)
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
