package sim

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

const leaderRole = raft.StateLeader

// versionOracle knows, per key, the highest version that a completed operation
// has shown. A read that begins later and shows less is stale.
type versionOracle struct {
	floors map[uint64]uint64
	// newest is the same of all keys together, where the machine tells it.
	newest uint64
}

func (o *versionOracle) init() { o.floors = make(map[uint64]uint64) }

func (o *versionOracle) floor(key uint64) uint64 { return o.floors[key] }

func (o *versionOracle) raise(key, version uint64) {
	if version > o.floors[key] {
		o.floors[key] = version
	}
}

// leaseOracle looks at the leases themselves: once a node has won an election,
// no node of an older term may pass its own lease check. It notices much more
// than stale reads do, because nothing has to be written and read at the right
// moment.
type leaseOracle struct {
	newest uint64             // the newest term that has a leader
	winner map[uint64]process // by term
	// resigned are those who have, word is when the last one did.
	resigned map[process]bool
	word     time.Duration
}

// process is one run of one node.
type process struct {
	id  uint64
	run int
}

func (o *leaseOracle) init() {
	o.winner, o.resigned = make(map[uint64]process), make(map[process]bool)
}

// check looks at one node, as a reader would find it, at any moment. A paused
// node is asked as well: what would it answer, if it ran just for this.
func (o *leaseOracle) check(s *sim, n *leasetest.Node) {
	o.hasResigned(s, n)
	if s.cfg.IndexReads || n.Lease() == nil || !n.Up() || (n.Role() == leaderRole && n.Term() >= o.newest) {
		return
	}
	if !n.Valid() {
		return
	}
	tok, err := n.Lease().Token()
	if err == nil && tok.Term < o.newest {
		s.violatef("disjoint", n.ID, "lease of term %d is valid, but node %d leads term %d", tok.Term, o.winner[o.newest].id, o.newest)
	}
}

func (s *sim) onLeader(n *leasetest.Node, term uint64) {
	s.res.Elections++
	s.succeeded()
	s.trace.note(s.c.Now(), n.ID, "WON the election", "term", term)
	o := &s.leases
	// Raft's own tests take two processes of one node for one leader (V9).
	if p, ok := o.winner[term]; ok {
		s.violatef("raft", n.ID, "wins term %d, which process %d of node %d has won", term, p.run, p.id)
	}
	o.winner[term] = process{n.ID, n.Process()}
	o.newest = max(o.newest, term)
	for _, other := range s.c.Nodes() {
		if other != n {
			o.check(s, other)
		}
	}
	s.readEverywhere()
}

// readEverywhere asks all nodes for a read while a leader is new: it may not
// know yet what is committed.
func (s *sim) readEverywhere() {
	for _, d := range []time.Duration{0, s.w.Latency, 3 * s.w.Latency} {
		s.c.After(d, func() {
			for _, n := range s.c.Nodes() {
				s.readAt(n, s.key(s.load.reads))
			}
		})
	}
}

// onAdmit and onReady look at the guard: at the instant of the decision, a node
// that is bound lets no request for its help in, and none of its votes out.
func (s *sim) onAdmit(n *leasetest.Node, m *raftpb.Message) {
	if s.cfg.SkipGuard {
		return
	}
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:
		if n.Bound() {
			s.violatef("guard", n.ID, "%v from %d reaches raft while bound", m.GetType(), m.GetFrom())
		}
	}
}

func (s *sim) onReady(n *leasetest.Node, msgs []*raftpb.Message) {
	s.takeTrace(n)
	if s.cfg.SkipGuard {
		return
	}
	bound, asked := false, false
	for _, m := range msgs {
		if !s.helps(n, m) {
			continue
		}
		if !asked {
			bound, asked = n.Bound(), true
		}
		if bound {
			s.violatef("guard", n.ID, "%v to %d leaves while bound", m.GetType(), m.GetTo())
		}
	}
}

// helps reports whether m helps to elect someone.
func (s *sim) helps(n *leasetest.Node, m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return true
	case raftpb.MsgVoteResp:
		return !m.GetReject()
	case raftpb.MsgPreVoteResp:
		return !m.GetReject() && m.GetTo() == n.ID
	case raftpb.MsgStorageAppend:
		for _, r := range m.GetResponses() {
			if s.helps(n, r) {
				return true
			}
		}
	}
	return false
}

func (s *sim) onDeliver(n *leasetest.Node, m *raftpb.Message) {
	s.res.Messages++
	s.takeTrace(n) // one that is held back has no Ready, and hears of candidates all the same
	s.trace.message(s.c.Now(), "gets ", n.ID, m)
}

func (s *sim) onSend(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgTimeoutNow {
		s.res.Transfers++
	}
	if s.trace.messages {
		s.trace.keep(s.c.Now(), m.GetFrom(), "sends "+m.GetType().String(), "to term index commit", m.GetTo(), m.GetTerm(), m.GetIndex(), m.GetCommit())
	}
	s.lines.sent(m)
}

func (s *sim) onCrash(n *leasetest.Node) {
	s.res.Crashes++
	s.died(n)
	s.collect(n)
}

// collect adds up what a process has counted, before it is gone.
func (s *sim) collect(n *leasetest.Node) {
	if n.Lease() == nil {
		return
	}
	s.res.addStats(n.Lease().Stats())
	suspected := n.Suspicions()
	s.res.Alarms += suspected.Suspicions[detector.LongSilence]
	s.res.FalseAlarms += suspected.FalseSuspicions
	if suspected.FalseSuspicions > 0 {
		s.trace.note(s.c.Now(), n.ID, "was wrong to suspect its leader", "times", suspected.FalseSuspicions)
	}
	if err := n.Lease().Info().Err; err != nil && !s.cfg.Misused {
		s.violatef("misuse", n.ID, "%v", err)
	}
}

func (s *sim) violated() bool { return s.res.Violation != nil }

func (s *sim) violatef(oracle string, node uint64, format string, args ...any) {
	s.violate(oracle, node, fmt.Sprintf(format, args...))
}

func (s *sim) violate(oracle string, node uint64, what string) {
	if s.violated() {
		return
	}
	v := &Violation{Oracle: oracle, Node: node, What: what}
	if s.c != nil {
		v.At = s.c.Now()
	}
	s.res.Violation = v
	s.trace.note(v.At, node, "VIOLATION of "+oracle+": "+what, "")
}
