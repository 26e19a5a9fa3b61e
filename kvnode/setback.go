package kvnode

import (
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// A member whose directory went back in time, because an image of its disk was
// restored, or the disk has lost what it had synced, has forgotten entries that it
// acknowledged, votes and promises. It must end before it helps to elect somebody who
// lacks those entries. Nobody knows everything that it had said; what its peers happen
// to know they hold against what it finds when it starts (docs/adr/0019-set-back.md).

// witness remembers, by member, what that is known to have had on disk.
type witness struct {
	mu struct {
		sync.Mutex
		of map[uint64]*evidence
	}
}

// evidence only grows: who was refused is refused again, whoever leads by then.
type evidence struct {
	// term is the least that its hard state may have, index the least that its log may
	// end at: it voted, or acknowledged, in term, and knew index to be committed.
	term, index uint64
	// acked is what it acknowledged to the leader of ackedTerm. Of a later term another
	// leader may have cut that off.
	acked, ackedTerm uint64
	// admitted are the processes that were let in, the one that came last at the end.
	// They are judged once: what is learned later, they may have said themselves. Who
	// is refused says nothing, and is judged again.
	admitted []string
}

// maxAdmitted is how many processes of one member are remembered. Those that run come
// again whenever another one has taken their connections, and so stay among the last.
const maxAdmitted = 16

func (w *witness) init() { w.mu.of = make(map[uint64]*evidence) }

// lock returns what is known of a member, for use until unlock is called.
func (w *witness) lock(id uint64) (e *evidence, unlock func()) {
	w.mu.Lock()
	if w.mu.of[id] == nil {
		w.mu.of[id] = &evidence{}
	}
	return w.mu.of[id], w.mu.Unlock
}

// forget drops what is known of IDs that are not registered: a peer may connect under any number of them.
func (w *witness) forget(ids ...uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		delete(w.mu.of, id)
	}
}

// admit notes that a process is let in.
func (e *evidence) admit(process string) {
	e.admitted = slices.DeleteFunc(e.admitted, func(p string) bool { return p == process })
	if len(e.admitted) == maxAdmitted {
		e.admitted = slices.Delete(e.admitted, 0, 1)
	}
	e.admitted = append(e.admitted, process)
}

// answer notes what a member says of its disk when it is asked for its vote, or was sent
// entries. A vote, the entry that it knows to be committed and what it acknowledges are
// durable before it answers.
func (w *witness) answer(m *raftpb.Message) {
	acks := m.GetType() == raftpb.MsgAppResp && !m.GetReject()
	if !acks && !isVoteAnswer(m) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.mu.of[m.GetFrom()]
	switch {
	case e == nil:
		return // forgotten; its next process must not be judged by what this one says
	case acks:
		e.ack(m.GetTerm(), m.GetIndex())
		return
	}
	e.index = max(e.index, m.GetCommit())
	if m.GetType() == raftpb.MsgVoteResp && !m.GetReject() {
		e.term = max(e.term, m.GetTerm())
	}
}

func (e *evidence) ack(term, index uint64) {
	e.term = max(e.term, term)
	if term > e.ackedTerm {
		e.ackedTerm, e.acked = term, 0
	}
	if term == e.ackedTerm {
		e.acked = max(e.acked, index)
	}
}

// setBack refuses a member that has less on its disk than it is known to have had. It
// does not wait for the loop, which a slow disk may hold up.
func (w *witness) setBack(h transport.Hello) error {
	e, unlock := w.lock(h.From)
	defer unlock()
	if h.Log.Process == "" {
		return nil // a former version, which ends once the leader tells it more
	}
	if slices.Contains(e.admitted, h.Log.Process) {
		e.admit(h.Log.Process)
		return nil
	}
	term, index := e.term, e.index
	if h.Log.Term <= e.ackedTerm {
		index = max(index, e.acked)
	}
	if h.Log.Term < term || h.Log.Last < index {
		return &transport.Refusal{Reason: transport.ReasonWiped, Term: term, Index: index, Text: fmt.Sprintf(
			"member %x (%s) has gone back in time: it comes with a log that ends at index %d, in term %d, but it had acknowledged index %d, and term %d",
			h.From, h.Name, h.Log.Last, h.Log.Term, index, term)}
	}
	e.term, e.index = max(e.term, h.Log.Term), max(e.index, h.Log.Commit)
	e.admit(h.Log.Process)
	return nil
}

// plausible refuses what a peer cannot know if this member's log is the one it
// answered from: raft would panic. An answer to what was sent in another term, before
// a restart most of all, is about another log, and raft ignores it.
func (l *raftLoop) plausible(m *raftpb.Message) error {
	err := transport.ValidateAgainst(m, l.last.Load())
	if err != nil && m.GetType() == raftpb.MsgAppResp {
		if s := l.raw.BasicStatus(); s.RaftState != raft.StateLeader || s.GetTerm() != m.GetTerm() {
			return nil
		}
	}
	return err
}

// implausible drops a message that raft would panic on. A leader tells a member that
// something is committed only up to what that one has acknowledged, and that is never
// taken back, so a member whose log ends before has lost it, however old the message.
func (l *raftLoop) implausible(m *raftpb.Message, err error) {
	switch {
	case m.GetType() == raftpb.MsgHeartbeat:
		l.lose(m.GetFrom(), true, fmt.Errorf("it had acknowledged index %d to member %s, and its log ends at %d: an old image of its disk was restored, or the disk has lost what it had written",
			m.GetCommit(), l.book.nameOf(m.GetFrom()), l.last.Load()))
	case l.logLimits.dropped.Allow(m.GetFrom()):
		l.log.Error("message dropped", "from", l.book.nameOf(m.GetFrom()), "type", m.GetType(), "error", err)
	}
}

// lose ends this member because of what a peer told it. What is proven, by a member of
// the cluster, is noted before Done is closed: nobody else may know when it is started
// again, and it would vote. It takes no part any more while that is written.
func (p *parts) lose(peer uint64, proven bool, err error) {
	p.life.Fail(fmt.Errorf("%w: %w; %s", ErrLost, err, p.cfg.beginAnew(p.ID())))
	if _, registered := p.book.members().Registered(peer); !proven || !registered {
		return
	}
	if !p.note(func(id *memberdir.Identity) { id.Lost = transport.ShownUpTo(err.Error(), lostBytes) }) {
		p.log.Error("cannot note that this member has lost its data; see to it that nothing starts it again with this directory")
	}
}

// lostBytes bounds what is kept of the words of a peer.
const lostBytes = 1 << 10

// lacks reports whether this member sees for itself that it has not what a peer refuses
// it for. What it has got since it began it may have acknowledged since: then that peer
// has mixed up two of its processes, and the next one is right.
func (p *parts) lacks(r *transport.RefusedError) bool {
	less := func(term, last uint64) bool { return term < r.Term || last < r.Index }
	return less(p.atStart.Term, p.atStart.Last) && less(p.leadership.Term(), p.last.Load())
}

func isVoteAnswer(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgVoteResp || m.GetType() == raftpb.MsgPreVoteResp
}
