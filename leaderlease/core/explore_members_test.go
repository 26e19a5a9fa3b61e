package core

// Configurations: a log of changes, reduced to what decides who is elected and which
// quorum counts. The other entries of a leader's term are as if they were one, its
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

// conf is the configuration that was applied. Whoever does not vote learns.
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

// have returns who has the first n changes of a term's leader.
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
