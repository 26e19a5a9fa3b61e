package raftsim

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"
)

// load makes the requests of clients.
type load struct {
	proposal, read uint64 // the last IDs given
	// probe is the first proposal made after everything was healed.
	probe uint64
}

func (s *sim) startLoad() {
	s.every(s.w.proposeEvery, s.propose)
	s.every(s.w.readEvery, s.readIndex)
}

// propose asks some member, mostly one that leads.
func (s *sim) propose() {
	n := s.someone(nil)
	if chance(s.rng, 0.5) {
		if l := s.someone((*node).leads); l != nil {
			n = l
		}
	}
	if n == nil || s.backlog() > maxBacklog {
		return
	}
	s.load.proposal++
	id := s.load.proposal
	n.later(0, func() {
		if !n.mayAppend() {
			return
		}
		n.p.waiting[id] = true
		_ = n.p.raw.Propose(binary.LittleEndian.AppendUint64(nil, id))
		n.pump()
	})
}

// maxBacklog is how many entries clients let a leader have uncommitted.
const maxBacklog = 50

func (s *sim) backlog() uint64 {
	longest := s.judge.committedTo()
	for _, n := range s.nodes {
		if n.leads() {
			longest = max(longest, n.p.log.last())
		}
	}
	return longest - s.judge.committedTo()
}

// mayAppend is the rule QuietExit: a leader that is about to leave appends
// nothing.
func (n *node) mayAppend() bool {
	return !n.s.cfg.Rules.QuietExit || !n.leads() || !n.leaves()
}

// leaves reports whether a change that is under way takes n's vote away.
func (n *node) leaves() bool {
	m := &n.p.machine
	if len(m.conf.GetVotersOutgoing()) > 0 && !slices.Contains(m.conf.GetVoters(), n.id) {
		return true
	}
	for i := max(m.applied, n.p.log.base) + 1; i <= n.p.log.last(); i++ {
		if n.p.log.at(i).gone&(1<<n.id) != 0 {
			return true
		}
	}
	return false
}

// readIndex asks some member for a read index. The answer must cover every entry that any member
// knows to be committed now.
func (s *sim) readIndex() {
	if n := s.someone(nil); n != nil {
		s.readAt(n)
	}
}

func (s *sim) readAt(n *node) {
	s.load.read++
	id := s.load.read
	n.later(0, func() {
		if s.cfg.Rules.OwnTermReads && !n.mayAnswerReads() {
			s.res.Count.RefusedReads++
			return
		}
		n.p.reads[id] = s.judge.committedTo()
		n.p.raw.ReadIndex(binary.LittleEndian.AppendUint64(nil, id))
		n.pump()
	})
}

// mayAnswerReads is the rule OwnTermReads: a leader has committed an entry of its
// own term. A follower forwards the request.
func (n *node) mayAnswerReads() bool {
	return !n.leads() || n.p.log.term(n.p.hard.commit) == n.p.hard.term
}

func (s *sim) readStates(n *node, states []raft.ReadState) {
	for _, rs := range states {
		id := binary.LittleEndian.Uint64(rs.RequestCtx)
		floor, asked := n.p.reads[id]
		if !asked {
			continue // doubled
		}
		delete(n.p.reads, id)
		s.res.Count.Reads++
		if rs.Index < floor {
			s.violate("stale read", "member %s was answered %d for a request made when %d was committed (%d acknowledged)", n.name(), rs.Index, floor, s.judge.acked)
		}
	}
}
