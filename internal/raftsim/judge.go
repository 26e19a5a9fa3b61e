package raftsim

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// judge sees the whole simulation, and reports violations.
type judge struct {
	s *sim
	// leaders has the process that leads each term.
	leaders map[uint64]leader
	// entries has the fingerprint of the entry at an index and a term.
	entries map[[2]uint64]uint64
	// committed[i-1] is what is known to be committed at index i.
	committed []fact
	// confs are the configurations by the index that led to them, oldest first;
	// members are all that ever were in one.
	confs   []confFact
	members map[uint64]bool
	// votes has the votes of each member by term. answered has the newest term in which each
	// member has voted or acknowledged an append.
	votes    map[[2]uint64]uint64
	answered map[uint64]uint64

	acked    uint64 // the highest index that was acknowledged to a client
	healedAt time.Duration
	// probed is where the first proposal made after healing was applied.
	probed uint64
}

type leader struct {
	id  uint64
	run int
}

// fact is a committed entry: its term and fingerprint, the state after it, and
// the term in which it was first known to be committed.
type fact struct {
	logEntry
	chain, known uint64
}

type confFact struct {
	index uint64
	conf  *raftpb.ConfState
}

func (j *judge) init(s *sim) {
	*j = judge{
		s: s, leaders: make(map[uint64]leader), entries: make(map[[2]uint64]uint64), members: make(map[uint64]bool),
		votes: make(map[[2]uint64]uint64), answered: make(map[uint64]uint64),
	}
	s.net.join()
	s.net.parted = make(map[[2]uint64]time.Duration)
}

// bootstrap sets the initial committed entry and configuration.
func (j *judge) bootstrap(conf *raftpb.ConfState) {
	j.committed = []fact{{logEntry: logEntry{term: 1}, chain: initialChain, known: 1}}
	j.addConf(1, conf)
}

func (j *judge) committedTo() uint64 { return uint64(len(j.committed)) }

// ready judges a Ready, whose entries are in n's view of the log already.
func (j *judge) ready(n *node, rd raft.Ready) {
	for _, e := range rd.Entries {
		j.entry(n, e)
	}
	j.hardState(n, rd.HardState)
	if rd.SoftState != nil {
		if isCandidate(rd.SoftState) {
			j.s.candidate(n)
		}
		won := rd.SoftState.RaftState == raft.StateLeader && !n.leads()
		n.p.soft = *rd.SoftState
		if won {
			j.elected(n)
		}
	}
}

// entry judges that an index and a term name one entry.
func (j *judge) entry(n *node, e *raftpb.Entry) {
	key, mark := [2]uint64{e.GetIndex(), e.GetTerm()}, fingerprint(e)
	if was, known := j.entries[key]; known && was != mark {
		j.s.violate("diverged", "member %s has another entry at index %d, term %d than was written before", n.name(), e.GetIndex(), e.GetTerm())
	}
	j.entries[key] = mark
}

// hardState judges that nothing goes back within an incarnation.
func (j *judge) hardState(n *node, h *raftpb.HardState) {
	if raft.IsEmptyHardState(h) {
		return
	}
	old := n.p.hard
	now := hardState{h.GetTerm(), h.GetVote(), h.GetCommit()}
	if now.term < old.term || now.commit < old.commit || now.term == old.term && old.vote != raft.None && now.vote != old.vote {
		j.s.violate("broken word", "member %s goes back from %+v to %+v", n.name(), old, now)
	}
	n.p.hard = now
	if now.commit > old.commit {
		j.commits(n, old.commit, now.commit)
		if n.leads() && n.p.log.firstConf(old.commit, now.commit) > 0 {
			j.s.leaving(n)
		}
	}
}

// started judges what an incarnation begins with.
func (j *judge) started(n *node) {
	h := n.disk.hard
	if h.term < j.answered[n.id] {
		j.s.violate("broken word", "member %s starts in term %d, and has voted or acknowledged in %d", n.name(), h.term, j.answered[n.id])
	}
	if voted, ok := j.votes[[2]uint64{n.id, h.term}]; ok && voted != h.vote {
		j.s.violate("broken word", "member %s starts with a vote for %d in term %d, and has voted for %d", n.name(), h.vote, h.term, voted)
	}
	if h.commit > n.disk.last() || h.commit < n.p.machine.applied {
		j.s.violate("broken word", "member %s starts with commit index %d, last entry %d, applied %d", n.name(), h.commit, n.disk.last(), n.p.machine.applied)
	}
}

// elected judges that one incarnation leads a term, and that it has all that was
// committed in terms before.
func (j *judge) elected(n *node) {
	term := n.p.hard.term
	j.s.note(n, "LEADS term %d", term)
	j.s.res.Count.Leaders++
	now := leader{n.id, n.run}
	if was, led := j.leaders[term]; led && was != now {
		j.s.violate("led twice", "term %d is led by member %s, and was led by member %d.%d", term, n.name(), was.id, was.run)
	}
	j.leaders[term] = now
	j.s.after(between(j.s.rng, 0, 2*time.Millisecond), func() { j.s.readAt(n) })
	log := &n.p.log
	for i := len(j.committed) - 1; i >= 0 && uint64(i+1) > log.base; i-- {
		f, index := j.committed[i], uint64(i+1)
		if f.known < term && log.term(index) != f.term {
			j.s.violate("diverged", "member %s leads term %d without the entry at %d, which was committed in term %d (it has term %d there)", n.name(), term, index, f.known, log.term(index))
			return
		}
	}
}

// word judges that a granted vote and an acknowledged append are durable when
// they leave.
func (j *judge) word(n *node, m *raftpb.Message) {
	h := n.disk.hard
	term := m.GetTerm()
	switch {
	case m.GetReject():
		return
	case m.GetType() == raftpb.MsgVoteResp:
		key := [2]uint64{n.id, term}
		if voted, ok := j.votes[key]; ok && voted != m.GetTo() {
			j.s.violate("broken word", "member %s votes for %d in term %d, and has voted for %d", n.name(), m.GetTo(), term, voted)
		}
		j.votes[key] = m.GetTo()
		if h.term < term || h.term == term && h.vote != m.GetTo() {
			j.s.violate("broken word", "the vote of member %s for %d in term %d leaves before it is durable", n.name(), m.GetTo(), term)
		}
	case m.GetType() == raftpb.MsgAppResp:
		if h.term < term || h.term == term && n.disk.last() < m.GetIndex() {
			j.s.violate("broken word", "member %s acknowledges %d in term %d before it is durable", n.name(), m.GetIndex(), term)
		}
	default:
		return
	}
	j.answered[n.id] = max(j.answered[n.id], term)
}
