package kvnode

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/transport"
)

// A member whose directory went back in time, because an image of its disk was
// restored, or the disk has lost what it had synced, has forgotten entries that it
// acknowledged, votes and promises. It must end before it helps to elect somebody who
// lacks those entries. Nobody knows everything that it had said; what its peers happen
// to know they hold against what it finds when it starts (docs/adr/0019-set-back.md).

// vouched is, by member, what it is known to have had on disk. The loop only.
type vouched map[uint64]*evidence

type evidence struct {
	// term is the least that its hard state may have, index the least that its log may
	// end at: it voted in term, and knew index to be committed.
	term, index uint64
	// admitted are the processes that were let in, the one that came last at the end.
	// They are judged once: what is learned later, they may have said themselves. Who
	// is refused says nothing, and is judged again.
	admitted []string
}

// maxAdmitted is how many processes of one member are remembered. Those that run come
// again whenever another one has taken their connections, and so stay among the last.
const maxAdmitted = 16

func (v vouched) of(id uint64) *evidence {
	if v[id] == nil {
		v[id] = &evidence{}
	}
	return v[id]
}

// admit notes that a process is let in.
func (e *evidence) admit(boot string) {
	e.admitted = slices.DeleteFunc(e.admitted, func(b string) bool { return b == boot })
	if len(e.admitted) == maxAdmitted {
		e.admitted = slices.Delete(e.admitted, 0, 1)
	}
	e.admitted = append(e.admitted, boot)
}

// answer notes what a member says of its disk when it is asked for its vote. Both a
// vote and the entry that it knows to be committed are durable before it answers.
func (v vouched) answer(m *raftpb.Message) {
	if !isVoteAnswer(m) {
		return
	}
	e := v.of(m.GetFrom())
	e.index = max(e.index, m.GetCommit())
	if m.GetType() == raftpb.MsgVoteResp && !m.GetReject() {
		e.term = max(e.term, m.GetTerm())
	}
}

// setBack refuses a member that has less on its disk than it is known to have had.
func (n *Node) setBack(h transport.Hello) error {
	if h.Log.Boot == "" {
		return nil // a former version, which ends once the leader tells it more
	}
	var verdict error
	if !n.call(func() { verdict = n.judge(h) }) {
		return ErrStopped
	}
	return verdict
}

func (n *Node) judge(h transport.Hello) error {
	e := n.loop.vouched.of(h.From)
	if slices.Contains(e.admitted, h.Log.Boot) {
		e.admit(h.Log.Boot)
		return nil
	}
	term, index := e.term, e.index
	if s := n.loop.raw.Status(); s.RaftState == raft.StateLeader {
		// Of a later term another leader may have cut off what this one was sent.
		if match := s.Progress[h.From].Match; match > 0 && h.Log.Term <= s.GetTerm() {
			term, index = max(term, s.GetTerm()), max(index, match)
		}
	}
	if h.Log.Term < term || h.Log.Last < index {
		return &transport.Refusal{Reason: transport.ReasonWiped, Text: fmt.Sprintf(
			"member %x (%s) has gone back in time: it comes with a log that ends at index %d, in term %d, but it had acknowledged index %d, and term %d",
			h.From, h.Name, h.Log.Last, h.Log.Term, index, term)}
	}
	e.term, e.index = max(e.term, h.Log.Term), max(e.index, h.Log.Commit)
	e.admit(h.Log.Boot)
	return nil
}

// implausible drops a message that raft would panic on. A leader tells a member that
// something is committed only up to what that one has acknowledged, and that is never
// taken back, so a member whose log ends before has lost it, however old the message.
func (n *Node) implausible(m *raftpb.Message, err error) {
	switch {
	case m.GetType() == raftpb.MsgHeartbeat:
		n.fail(fmt.Errorf("%w: it had acknowledged index %d to member %s, and its log ends at %d: an old image of its disk was restored, or the disk has lost what it had written; %s",
			ErrLost, m.GetCommit(), n.nameOf(m.GetFrom()), n.last.Load(), n.beginAnew()))
	case m.GetTerm() < n.Term():
		// It answers a former process of this member, which had sent more than it kept.
	case n.quiet.dropped.loud(m.GetFrom()):
		n.log.Error("kvnode: message dropped", "from", n.nameOf(m.GetFrom()), "type", m.GetType(), "error", err)
	}
}

// beginAnew is what to do about a member that must not go on with its directory.
func (n *Node) beginAnew() string { return n.cfg.beginAnew(n.id.MemberID) }

func (c *Config) beginAnew(id uint64) string {
	return fmt.Sprintf("remove it from the cluster (member remove %x) unless that is done, add it anew (member add %s --peer-urls=%s), "+
		"remove %s, and start it with --initial-cluster-state existing", id, c.Name, strings.Join(c.self().PeerURLs, ","), c.DataDir)
}
