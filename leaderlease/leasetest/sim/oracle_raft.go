package sim

import (
	"hash/fnv"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// raftOracle checks raft itself, and with it the simulator's disks and loop:
// all nodes apply the same entry at the same index and come to equal states,
// and no acknowledged write is lost.
type raftOracle struct {
	entries []appliedEntry // by index
	hashes  map[uint64]uint64
	written map[uint64]uint64 // by version, the write
	acks    []ack
}

type appliedEntry struct {
	term, sum uint64
	outcome   leasetest.Outcome
	seen      bool
}

type ack struct{ write, key, version, index uint64 }

// Every so many entries the states are compared, which costs more than the
// entries do. A durable machine has more ways to go wrong.
const (
	hashEvery        = 64
	hashEveryDurable = 8
)

func (o *raftOracle) init() {
	o.hashes, o.written = make(map[uint64]uint64), make(map[uint64]uint64)
}

func (o *raftOracle) acked(a ack) { o.acks = append(o.acks, a) }

func (s *sim) onApply(n *leasetest.Node, e *raftpb.Entry, made leasetest.Outcome) {
	o, index := &s.raft, e.GetIndex()
	for uint64(len(o.entries)) <= index {
		o.entries = append(o.entries, appliedEntry{})
	}
	got := appliedEntry{term: e.GetTerm(), sum: sum(e.GetData()), outcome: made, seen: true}
	known := &o.entries[index]
	switch {
	case !known.seen:
		*known = got
		s.res.Entries++
		if w := got.outcome.Write; w != 0 {
			o.written[got.outcome.Version] = w
			s.linear.committed(w, got.outcome.Version)
		}
	case known.term == got.term && known.sum == got.sum && known.outcome != got.outcome:
		s.violatef("raft", n.ID, "makes %+v of the entry at index %d, which had led to %+v", got.outcome, index, known.outcome)
	case *known != got:
		s.violatef("raft", n.ID, "applies an entry of term %d at index %d, where another of term %d was applied", got.term, index, known.term)
	}
	s.trace.mix(uint64(s.c.Now()), n.ID, index, e.GetTerm())
	if got.outcome.Sum != 0 {
		s.trace.mix(got.outcome.Sum)
	}
	if e.GetType() != raftpb.EntryNormal {
		s.noteConf(n, index)
	}
	if index%hashEvery == 0 || (n.Machine().Durable() && index%hashEveryDurable == 0) {
		s.compareState(n)
	}
}

func (s *sim) noteConf(n *leasetest.Node, index uint64) {
	s.res.ConfChanges++
	s.operator.sees(n, index)
	s.trace.note(s.c.Now(), n.ID, "applies configuration", "index voters outgoing learners",
		index, digits(n.Conf().GetVoters()), digits(n.Conf().GetVotersOutgoing()), digits(n.Conf().GetLearners()))
}

// digits shows a set of nodes as a decimal number, two digits each.
func digits(ids []uint64) (set uint64) {
	for _, id := range ids {
		set = set*100 + id
	}
	return set
}

func (s *sim) compareState(n *leasetest.Node) {
	o, index, hash := &s.raft, n.Applied(), n.Hash()
	known, ok := o.hashes[index]
	if !ok {
		o.hashes[index] = hash
		return
	}
	if known != hash {
		s.violatef("raft", n.ID, "state at index %d differs from another node's", index)
	}
}

// onRestart judges what a process begins with. The leader has applied what a log proves
// to be committed.
func (s *sim) onRestart(n *leasetest.Node) {
	if index := n.Recovered(); index > 0 {
		s.res.Recovered++
		s.trace.note(s.c.Now(), n.ID, "its log proves a commit index", "index", index)
		if index >= uint64(len(s.raft.entries)) || !s.raft.entries[index].seen {
			s.violatef("raft", n.ID, "takes index %d for committed, which no node has applied", index)
		}
	}
	s.compareState(n)
}

// checkAcks looks for every acknowledged write on a node that has applied
// everything.
func (s *sim) checkAcks(n *leasetest.Node) {
	o := &s.raft
	for _, a := range o.acks {
		if n.Version(a.key) < a.version || o.written[a.version] != a.write {
			s.violatef("raft", n.ID, "acknowledged write %d of key %d, version %d, is missing", a.write, a.key, a.version)
			return
		}
	}
}

func sum(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64()
}
