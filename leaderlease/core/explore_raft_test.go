package core

import "time"

// The election: what raft does, with pre-votes, logs and timers left out, so that
// any node may campaign at any time, and any node may vote for any other.

// follow takes node i to a term, as a follower.
func (s *stage) follow(i int, term uint8) {
	a := &s.actors[i]
	if term > a.term {
		a.term, a.vote = term, 0
	}
	a.role, a.asking, a.got, a.forced = follower, false, 0, Release{}
	if s.b.flaw != termNotTold {
		a.guard.SetTerm(uint64(a.term))
	}
	if s.b.flaw != termNotEnded {
		a.lease.StepDown()
	}
}

// campaign makes i a candidate. What it asks for leaves if it is not bound (V4), and
// once its term is durable (V9).
func (s *stage) campaign(i int, forced bool) bool {
	a := &s.actors[i]
	if a.role == leads || int(a.term) >= s.b.terms || !a.conf.votes(i) || a.log.applied < a.log.committed {
		return false
	}
	bound := a.guard.Bound(a.now) && s.b.flaw != ownCampaignFree
	if bound && !s.b.boundCampaigns {
		return false
	}
	s.follow(i, a.term+1)
	a.role, a.vote, a.asking = candidate, uint8(i+1), !bound
	if a.mailTerm != a.term {
		a.mail, a.mailTerm = 0, a.term
	}
	if r, ok := a.guard.Released(uint64(a.term)); forced && ok {
		a.forced = r
	}
	return true
}

// durable writes what node i has in memory, and lets go what waited for it.
func (s *stage) durable(i int) bool {
	a := &s.actors[i]
	if a.dterm == a.term && a.dvote == a.vote {
		return false
	}
	a.dterm, a.dvote = a.term, a.vote
	switch {
	case a.vote == uint8(i+1):
		if a.role == candidate && a.asking {
			a.got |= one(i)
			s.count(i)
		}
	case a.vote != 0:
		s.post(a.vote, a.term, i)
	}
	return true
}

// post puts i's vote for c on its way.
func (s *stage) post(c, term uint8, i int) {
	if a := &s.actors[c-1]; a.mailTerm == term {
		a.mail |= one(i)
	}
}

// mayAsk reports whether the requests of candidate i have left.
func (s *stage) mayAsk(i, j int) bool {
	a := &s.actors[i]
	return i != j && a.role == candidate && a.asking && a.conf.votes(j) &&
		(a.dterm == a.term || s.b.flaw == voteBeforeDurable)
}

// ask lets the request of candidate i arrive at j.
func (s *stage) ask(i, j int) bool {
	if !s.mayAsk(i, j) {
		return false
	}
	a := &s.actors[i]
	return s.vote(uint8(i+1), a.term, a.forced, j)
}

// vote is a request of c that arrives at j (V3).
func (s *stage) vote(c, term uint8, rel Release, j int) bool {
	v := &s.actors[j]
	if !s.admit(j, rel) {
		return true
	}
	if term > v.term {
		s.follow(j, term)
	}
	if term < v.term || v.role != follower || (v.vote != 0 && v.vote != c) || v.log.newer(&s.actors[c-1].log) {
		return true
	}
	v.vote = c
	if v.dterm == v.term && v.dvote == v.vote {
		s.post(c, term, j) // voted before, and says so once more
	}
	return true
}

// admit asks j's guard about a message that carries a release, if there is one.
func (s *stage) admit(j int, rel Release) bool {
	v := &s.actors[j]
	bound, older := v.guard.promise.until, v.guard.promise.term < rel.Term
	var r *Release
	if rel != (Release{}) {
		r = &rel
	}
	if v.guard.Admit(r, v.now) || s.b.flaw == guardNotHeard {
		switch {
		case bound > v.now && older:
			s.reach(goalReleasedOlder)
		case bound > v.now:
			s.reach(goalReleased)
		case v.guard.promise.until > 0:
			s.reach(goalFreed)
		}
		return true
	}
	if v.guard.InRestartHold(v.now) {
		s.reach(goalHeld)
	} else {
		s.reach(goalBound)
	}
	return false
}

// arrive lets the vote of j reach candidate i, unless that is bound (V3).
func (s *stage) arrive(i, j int) bool {
	a := &s.actors[i]
	if a.role != candidate || a.mailTerm != a.term || !(a.mail &^ a.got).has(j) {
		return false
	}
	if a.guard.Bound(a.now) && s.b.flaw != ownCampaignFree {
		return false
	}
	a.got |= one(j)
	s.count(i)
	return true
}

// count makes candidate i the leader if its votes are a quorum.
func (s *stage) count(i int) {
	a := &s.actors[i]
	if !a.conf.wins(a.got) {
		return
	}
	if a.forced != (Release{}) {
		s.reach(goalHandedOver)
		if s.resigned(uint8(a.forced.Term)) {
			s.reach(goalResigned)
		}
	}
	if s.led[a.term] == uint8(i+1) {
		s.reach(goalTwice)
	}
	s.led[a.term] = uint8(i + 1)
	a.role, a.asking, a.got, a.forced = leads, false, 0, Release{}
	if s.b.budget.changes > 0 {
		a.log.last = a.term
	}
	a.lease.p = s.b.params(uint64(i+1), a.term)
	a.lease.Lead(uint64(a.term), a.now)
}

// resigned reports whether a leader of term lives on that has resigned.
func (s *stage) resigned(term uint8) bool {
	for i := range s.b.nodes {
		if l := &s.actors[i].lease; l.closed && l.term == uint64(term) {
			return true
		}
	}
	return false
}

// soon does what loses nothing by being done at once, since it only adds to what may
// come: a leader learns that an entry of its term is committed; and where no
// node ever crashes, all that can be durable is.
func (s *stage) soon() {
	for i := range s.b.nodes {
		if s.b.budget.crashes == 0 {
			s.durable(i)
		}
		s.commit(i)
	}
}

// commit tells leader i that an entry of its own term is committed, if it can be. A
// node with that entry is in its term.
func (s *stage) commit(i int) {
	a := &s.actors[i]
	if a.role != leads || a.lease.ownCommit {
		return
	}
	with := s.have(a.term, 0)
	if s.b.budget.changes == 0 {
		with = s.inTerm(a.term)
	}
	if !a.conf.wins(with) {
		return
	}
	a.lease.OwnTermCommitted()
	// With it everything before it is.
	for a.log.committed < a.log.n && a.log.changes[a.log.committed].term < a.term {
		a.log.committed++
	}
	s.handedOut(i)
}

// inTerm returns the nodes in a term.
func (s *stage) inTerm(term uint8) (v voters8) {
	for j := range s.b.nodes {
		if s.actors[j].term == term {
			v |= one(j)
		}
	}
	return v
}

// learn lets node i hear of the later term of j.
func (s *stage) learn(i, j int) bool {
	if i == j || s.actors[i].term >= s.actors[j].term {
		return false
	}
	s.follow(i, s.actors[j].term)
	return true
}

// restart ends a node's process and begins another, which knows what was durable.
func (s *stage) restart(i int) bool {
	if s.left.crashes == 0 {
		return false
	}
	s.left.crashes--
	if s.b.budget.deaths > 0 {
		s.actors[i].run++
	}
	s.begin(i)
	return true
}

// begin begins a process. Its clock begins anew, at a reading that no clock of this
// node has gone below.
func (s *stage) begin(i int) {
	a := &s.actors[i]
	a.term, a.vote, a.role, a.asking, a.got, a.forced = a.dterm, a.dvote, follower, false, 0, Release{}
	a.log.committed = a.log.applied
	a.now = firstInstant
	var hold time.Duration
	if a.dterm > 0 && s.b.flaw != noHold {
		hold = s.b.maxPromise()
	}
	if s.b.flaw == halfHold {
		hold /= 2
	}
	if s.b.floor > 0 {
		hold = min(hold, s.b.units(int(a.disk)))
	}
	a.guard = *NewGuard(a.now, 1, s.b.maxPromise(), hold)
	if s.b.floor > 0 {
		a.saving = 0
		a.guard.SetStored(s.b.units(s.b.floor), s.b.units(int(a.disk)))
	}
	a.guard.SetTerm(uint64(a.term))
	a.lease = *NewLease(s.b.params(uint64(i+1), 0))
	s.setVoters(i)
	s.holds(i)
	for j := range s.b.nodes {
		s.actors[j].drift[i] = 0
		if a.dterm == 0 {
			a.drift[j] = 0 // it has never promised anything
		}
	}
}
