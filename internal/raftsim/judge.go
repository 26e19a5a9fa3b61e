package raftsim

import (
	"encoding/binary"
	"fmt"
	"strings"
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
	// committed[i-1] is the entry that is known to be committed at index i.
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

// ready checks a Ready. Its entries are in n's view of the log already.
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
		j.s.violate("not durable", "member %s goes back from %+v to %+v", n.name(), old, now)
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
		j.s.violate("not durable", "member %s starts in term %d, and has voted or acknowledged in %d", n.name(), h.term, j.answered[n.id])
	}
	if voted, ok := j.votes[[2]uint64{n.id, h.term}]; ok && voted != h.vote {
		j.s.violate("not durable", "member %s starts with a vote for %d in term %d, and has voted for %d", n.name(), h.vote, h.term, voted)
	}
	if h.commit > n.disk.last() || h.commit < n.p.machine.applied {
		j.s.violate("not durable", "member %s starts with commit index %d, last entry %d, applied %d", n.name(), h.commit, n.disk.last(), n.p.machine.applied)
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

// durable checks that a granted vote and an acknowledged append are durable when they leave.
func (j *judge) durable(n *node, m *raftpb.Message) {
	h := n.disk.hard
	term := m.GetTerm()
	switch {
	case m.GetReject():
		return
	case m.GetType() == raftpb.MsgVoteResp:
		key := [2]uint64{n.id, term}
		if voted, ok := j.votes[key]; ok && voted != m.GetTo() {
			j.s.violate("not durable", "member %s votes for %d in term %d, and has voted for %d", n.name(), m.GetTo(), term, voted)
		}
		j.votes[key] = m.GetTo()
		if h.term < term || h.term == term && h.vote != m.GetTo() {
			j.s.violate("not durable", "the vote of member %s for %d in term %d leaves before it is durable", n.name(), m.GetTo(), term)
		}
	case m.GetType() == raftpb.MsgAppResp:
		if h.term < term || h.term == term && n.disk.last() < m.GetIndex() {
			j.s.violate("not durable", "member %s acknowledges %d in term %d before it is durable", n.name(), m.GetIndex(), term)
		}
	default:
		return
	}
	j.answered[n.id] = max(j.answered[n.id], term)
}

// commits checks the entries that n newly knows to be committed.
func (j *judge) commits(n *node, from, to uint64) {
	log := &n.p.log
	if to > log.last() {
		j.s.violate("diverged", "member %s has committed %d, and its log ends at %d", n.name(), to, log.last())
		return
	}
	if log.base > from {
		j.snapshot(n, log.base, log.baseTerm)
		from = log.base
	}
	for index := from + 1; index <= to; index++ {
		j.commit(n, index, log.at(index))
	}
}

func (j *judge) commit(n *node, index uint64, e logEntry) {
	if index > j.committedTo()+1 {
		j.s.violate("diverged", "member %s has committed %d, and no member %d", n.name(), index, index-1)
		return
	}
	if index == j.committedTo()+1 {
		chain := trace{hash: j.committed[index-2].chain}
		chain.mix(index, e.print)
		j.committed = append(j.committed, fact{e, chain.hash, n.p.hard.term})
		j.s.res.Count.Commits++
		return
	}
	if f := j.committed[index-1]; f.logEntry != e && index > 1 {
		j.s.violate("diverged", "member %s has committed an entry of term %d at %d, where one of term %d was committed", n.name(), e.term, index, f.term)
	}
}

// recovered checks that a commit index that a log proves is right.
func (j *judge) recovered(n *node, commit uint64) {
	if commit > j.committedTo() {
		j.s.violate("diverged", "member %s takes %d for committed, and only %d is", n.name(), commit, j.committedTo())
		return
	}
	j.commits(n, n.p.hard.commit, commit)
}

// snapshot checks that a snapshot from a leader matches the committed log.
func (j *judge) snapshot(n *node, index, term uint64) {
	if index > j.committedTo() {
		j.s.violate("diverged", "member %s accepts a snapshot at %d, and only %d is committed", n.name(), index, j.committedTo())
	} else if f := j.committed[index-1]; f.term != term {
		j.s.violate("diverged", "member %s accepts a snapshot of term %d at %d, where term %d was committed", n.name(), term, index, f.term)
	}
}

// applied judges the state of a machine.
func (j *judge) applied(n *node) {
	m := &n.p.machine
	if m.applied > j.committedTo() || m.applied > 0 && j.committed[m.applied-1].chain != m.chain {
		j.s.violate("diverged", "the state of member %s at %d is not what was committed", n.name(), m.applied)
	}
}

// appliedEntry follows configurations, and the proposals that show recovery.
func (j *judge) appliedEntry(n *node, e *raftpb.Entry) {
	if e.GetType() != raftpb.EntryNormal {
		if e.GetIndex() > n.p.restored {
			j.addConf(e.GetIndex(), n.p.machine.conf)
		}
		return
	}
	if data := e.GetData(); j.s.healed && j.probed == 0 && len(data) == 8 && binary.LittleEndian.Uint64(data) >= j.s.load.probe {
		j.probed = e.GetIndex()
	}
}

// addConf records the configuration after a change, which must be the same on all members.
func (j *judge) addConf(index uint64, conf *raftpb.ConfState) {
	for i := len(j.confs) - 1; i >= 0 && j.confs[i].index >= index; i-- {
		if j.confs[i].index > index {
			continue
		}
		if err := j.confs[i].conf.Equivalent(conf); err != nil {
			j.s.violate("diverged", "two configurations at %d: %v", index, err)
		}
		return
	}
	if len(j.confs) > 0 {
		j.s.res.Count.Changes++
	}
	// A slow member may apply an older change that no living member has applied. The newest
	// configuration stays last.
	j.confs = append(j.confs, confFact{index, conf})
	for i := len(j.confs) - 1; i > 0 && j.confs[i-1].index > index; i-- {
		j.confs[i-1], j.confs[i] = j.confs[i], j.confs[i-1]
	}
	for _, ids := range [][]uint64{conf.GetVoters(), conf.GetLearners(), conf.GetLearnersNext(), conf.GetVotersOutgoing()} {
		for _, id := range ids {
			j.members[id] = true
		}
	}
}

func (j *judge) newestConf() (uint64, *raftpb.ConfState) {
	c := j.confs[len(j.confs)-1]
	return c.index, c.conf
}

// acknowledge records an acknowledgement to a client.
func (j *judge) acknowledge(n *node, index uint64) {
	j.acked = max(j.acked, index)
	j.s.res.Count.Acked++
	j.s.note(n, "acknowledges %d", index)
}

// recovered reports whether something that was proposed after healing is applied
// by every member of the newest configuration.
func (s *sim) recovered() bool {
	if s.judge.probed == 0 {
		return false
	}
	_, conf := s.judge.newestConf()
	for _, n := range s.nodes {
		if isMember(conf, n.id) && (n.p == nil || n.p.machine.applied < s.judge.probed) {
			return false
		}
	}
	return true
}

// judgeEnd judges that the cluster has recovered, and that no acknowledged entry is missing.
func (s *sim) judgeEnd() {
	if !s.recovered() {
		s.violate("no leader", "nothing was committed and applied everywhere within %v of healing: %s", recovery, s.state())
		return
	}
	s.res.Count.Healing = s.now - s.judge.healedAt
	if s.judge.acked > s.judge.committedTo() {
		s.violate("lost", "%d was acknowledged, %d is committed", s.judge.acked, s.judge.committedTo())
	}
}

// state describes the state of every node, for people.
func (s *sim) state() string {
	index, conf := s.judge.newestConf()
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %d;", describeConf(conf), index)
	for _, n := range s.nodes {
		switch {
		case n.off:
			fmt.Fprintf(&b, " %d is off;", n.id)
		case n.p == nil:
			fmt.Fprintf(&b, " %d is down;", n.id)
		default:
			st := n.p.raw.Status()
			fmt.Fprintf(&b, " %s %v of %v, term %d, commit %d, applied %d, last %d/%d;", n.name(), n.p.soft.RaftState,
				st.Config, st.GetTerm(), st.GetCommit(), n.p.machine.applied, n.p.log.last(), n.p.log.term(n.p.log.last()))
		}
	}
	return b.String()
}

// forgettable says which data in a message its sender would lose in a crash now.
type forgettable struct{ term, entry, commit bool }

func (f forgettable) any() bool { return f.term || f.entry || f.commit }

// forgettable compares a message that leaves with the durable state of its sender.
func (n *node) forgettable(m *raftpb.Message) forgettable {
	var f forgettable
	d := n.disk
	switch m.GetType() {
	case raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		// Their term is the next one, or that of the request.
	default:
		f.term = m.GetTerm() > d.hard.term
	}
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		// Later, entries of that term may have replaced them rightly.
		f.entry = d.hard.term < m.GetTerm() && !d.has(m.GetIndex(), m.GetLogTerm())
	case raftpb.MsgApp:
		f.entry = !d.has(m.GetIndex(), m.GetLogTerm())
		for _, e := range m.GetEntries() {
			f.entry = f.entry || !d.has(e.GetIndex(), e.GetTerm())
		}
		f.commit = m.GetCommit() > d.hard.commit
	case raftpb.MsgAppResp:
		f.entry = !m.GetReject() && m.GetIndex() > d.last()
	case raftpb.MsgHeartbeat:
		f.commit = m.GetCommit() > d.hard.commit
	case raftpb.MsgReadIndexResp:
		f.commit = m.GetIndex() > d.hard.commit
	case raftpb.MsgSnap:
		f.commit = m.GetSnapshot().GetMetadata().GetIndex() > d.hard.commit
	default:
	}
	return f
}

// leaves counts a message that leaves, and checks that its answers are durable.
func (j *judge) leaves(n *node, m *raftpb.Message) {
	f := n.forgettable(m)
	c := &j.s.res.Said[m.GetType()]
	c.Sent++
	c.Term += bit(f.term)
	c.Entry += bit(f.entry)
	c.Commit += bit(f.commit)
	j.durable(n, m)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
