package leasetest

import (
	"errors"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Rules are steps that an embedder of raft takes beyond raft's documentation.
// docs/raft-durability.md describes what goes wrong without each of them.
type Rules struct {
	// HoldVotes (rule V9), with AsyncStorageWrites, sends a MsgVote when the candidate's term and
	// vote are durable. The Lease does it for nodes of Kind Library.
	HoldVotes bool
	// DurableConf applies a configuration change only when a commit index that covers it is
	// durable.
	DurableConf bool
	// CompactByRaft compacts no entry that raft has not been told is applied.
	CompactByRaft bool
	// OwnTermReads lets no MsgReadIndex reach a leader that has committed nothing in its term.
	// Raft waits for that, but not if the leader is the only voter. The Lease does it for nodes
	// of Kind Library.
	OwnTermReads bool
	// QuietExit lets a leader of Kind Plain append nothing after a change that removes its own
	// vote. Otherwise it may leave with a longer log than the remaining members, before they
	// know that the change is committed. Then they need its vote, it refuses, and no member can
	// be elected.
	QuietExit bool
	// HoldAppends sends the entries of a leader of Kind Plain only when they are durable, while
	// a change of configuration is under way. Otherwise a former voter, which never campaigns,
	// may hold entries that the leader has lost, and refuse the vote that the leader needs by the
	// older configuration.
	HoldAppends bool
	// RecoverCommit starts with the commit index that the log proves (see
	// leaderlease.RecoverCommit). Otherwise a follower may receive two changes in one append
	// and be killed before its disk knows that the first one is committed. It then starts in
	// the configuration before both, and is elected beside the leader.
	RecoverCommit bool
	// CommitHints puts the commit index into answers to candidates. It is another remedy for
	// what QuietExit and HoldAppends prevent.
	CommitHints bool
}

// Volatile says which data in a message its sender would lose in a crash.
type Volatile struct{ Term, Entry, Commit bool }

// Any reports whether it would lose any.
func (v Volatile) Any() bool { return v.Term || v.Entry || v.Commit }

// Volatile compares a message that leaves the node with the node's disk.
func (n *Node) Volatile(m *raftpb.Message) (v Volatile) {
	hard := n.HardState()
	switch m.GetType() {
	case raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		// Their term is the next one, or that of the request.
	default:
		v.Term = m.GetTerm() > hard.GetTerm()
	}
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		// Later, entries of that term may have replaced them rightly.
		v.Entry = hard.GetTerm() < m.GetTerm() && !n.stored(m.GetIndex(), m.GetLogTerm())
	case raftpb.MsgApp:
		v.Entry = !n.stored(m.GetIndex(), m.GetLogTerm()) || slices.ContainsFunc(m.GetEntries(), func(e *raftpb.Entry) bool {
			return !n.stored(e.GetIndex(), e.GetTerm())
		})
		v.Commit = m.GetCommit() > hard.GetCommit()
	case raftpb.MsgAppResp:
		v.Entry = !m.GetReject() && m.GetIndex() > n.LastIndex()
	case raftpb.MsgHeartbeat:
		v.Commit = m.GetCommit() > hard.GetCommit()
	case raftpb.MsgReadIndexResp:
		v.Commit = m.GetIndex() > hard.GetCommit()
	case raftpb.MsgSnap:
		v.Commit = m.GetSnapshot().GetMetadata().GetIndex() > hard.GetCommit()
	}
	return v
}

// HardState returns the hard state that outlives a crash.
func (n *Node) HardState() *raftpb.HardState {
	if d, ok := n.disk.(*memoryDisk); ok {
		return committedTo(d.durable, n.first()-1)
	}
	hard, _, err := n.disk.InitialState()
	must(err)
	return hard
}

// stored reports whether the entry of that index and term is durable. A compacted entry was
// committed.
func (n *Node) stored(index, term uint64) bool {
	have, err := n.disk.Term(index)
	return errors.Is(err, raft.ErrCompacted) || err == nil && have == term
}

// LastIndex returns the index of the last durable entry.
func (n *Node) LastIndex() uint64 {
	last, err := n.disk.LastIndex()
	must(err)
	return last
}

// logView is what a node without the library knows of its log, durable or not.
type logView struct {
	// changes are the configuration changes that were not applied when they came.
	changes []loggedChange
	// term is the newest term of an entry, start the index of that term's first entry.
	term, start uint64
}

// loggedChange is a configuration change, and the voters that it removes or demotes.
type loggedChange struct {
	index uint64
	gone  []uint64
}

func (l *logView) add(entries []*raftpb.Entry) {
	for _, e := range entries {
		l.changes = slices.DeleteFunc(l.changes, func(c loggedChange) bool { return c.index >= e.GetIndex() })
		if e.GetTerm() > l.term {
			l.term, l.start = e.GetTerm(), e.GetIndex()
		}
		cc := confChange(e)
		if cc == nil {
			continue
		}
		c := loggedChange{index: e.GetIndex()}
		for _, one := range cc.AsV2().GetChanges() {
			if one.GetType() != raftpb.ConfChangeAddNode {
				c.gone = append(c.gone, one.GetNodeId())
			}
		}
		l.changes = append(l.changes, c)
	}
}

// openLog begins the view with the entries on the disk. Raft counts those up to told as applied.
func (n *Node) openLog(told uint64) {
	n.log, n.told, n.tellAt = logView{}, told, 0
	if from, last := max(n.first(), n.Applied()+1), n.LastIndex(); from <= last {
		entries, err := n.disk.Entries(from, last+1, noLimit)
		must(err)
		n.log.add(entries)
	}
}

// unapplied returns the configuration changes in the log that are not applied.
func (n *Node) unapplied() []loggedChange {
	n.log.changes = slices.DeleteFunc(n.log.changes, func(c loggedChange) bool { return c.index <= n.Applied() })
	return n.log.changes
}

func (n *Node) changing() bool { return len(n.unapplied()) > 0 }

// Leaves returns the index of a configuration change that is under way and takes the node's vote
// away, 0 if there is none.
func (n *Node) Leaves() (index uint64) {
	if len(n.conf.GetVotersOutgoing()) > 0 && !slices.Contains(n.conf.GetVoters(), n.ID) {
		return n.Applied()
	}
	for _, c := range n.unapplied() {
		if slices.Contains(c.gone, n.ID) {
			return c.index
		}
	}
	return 0
}

// mayAppend is the rule QuietExit.
func (n *Node) mayAppend() bool {
	return n.Options.Kind != Plain || n.Options.Without.QuietExit || n.role != raft.StateLeader || n.Leaves() == 0
}

// holdsAppend is the rule HoldAppends.
func (n *Node) holdsAppend(m *raftpb.Message) bool {
	if n.Options.Kind != Plain || n.Options.Without.HoldAppends || m.GetType() != raftpb.MsgApp {
		return false
	}
	return (len(n.conf.GetVotersOutgoing()) > 0 || n.changing()) && n.Volatile(m).Entry
}

// mayAnswerReads is the rule OwnTermReads. A follower forwards the request.
func (n *Node) mayAnswerReads() bool {
	if n.Options.Kind != Plain || n.Options.Without.OwnTermReads || n.role != raft.StateLeader {
		return true
	}
	return n.log.term == n.term && n.raw.BasicStatus().GetCommit() >= n.log.start
}

// refuses reports whether a rule keeps a message from raft.
func (n *Node) refuses(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgProp && !n.mayAppend() || m.GetType() == raftpb.MsgReadIndex && !n.mayAnswerReads()
}

// mayCompact is the rule CompactByRaft.
func (n *Node) mayCompact(index uint64) bool {
	return n.Options.Without.CompactByRaft || index <= n.told
}

// tell lets raft know that entries are applied, after NodeOptions.TellDelay and in order.
func (n *Node) tell(m *raftpb.Message) {
	now := n.cluster.Now()
	n.tellAt = max(n.tellAt, now+delay(n.Options.TellDelay))
	respond := func() {
		if entries := m.GetEntries(); len(entries) > 0 {
			n.told = max(n.told, entries[len(entries)-1].GetIndex())
		}
		n.respond(m.GetResponses())
	}
	if n.tellAt == now {
		respond()
		return
	}
	n.later(n.tellAt-now, func() { n.exec(respond) })
}
