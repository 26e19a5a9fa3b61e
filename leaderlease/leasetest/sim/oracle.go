package sim

import (
	"fmt"
	"hash/fnv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetest"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

const leaderRole = raft.StateLeader

// versionOracle knows, per key, the highest version that a completed operation
// has shown. A read that begins later and shows less is stale.
type versionOracle struct {
	floors map[uint64]uint64
	// newest is the newest version of all keys, if the machine reports it.
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
	// resigned are the processes that have resigned, resignedAt is the time of the last
	// resignation.
	resigned   map[process]bool
	resignedAt time.Duration
}

// process is one run of one node.
type process struct {
	id  uint64
	run int
}

func (o *leaseOracle) init() {
	o.winner, o.resigned = make(map[uint64]process), make(map[process]bool)
}

// check checks one node as a reader would find it. It checks a paused node as well, as if the
// node ran for just this check.
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

// helps reports whether m helps an election.
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
	s.takeTrace(n) // a node that is held back has no Ready, but traces requests
	s.trace.message(s.c.Now(), "gets ", n.ID, m)
}

func (s *sim) onSend(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgTimeoutNow {
		s.res.Transfers++
	}
	if s.trace.messages {
		s.trace.keep(s.c.Now(), m.GetFrom(), "sends "+m.GetType().String(), "to term index commit", m.GetTo(), m.GetTerm(), m.GetIndex(), m.GetCommit())
	}
	s.checkDurable(m)
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
	s.res.Suspicions += suspected.Suspicions[detector.LongSilence]
	s.res.FalseSuspicions += suspected.FalseSuspicions
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

// traceRoom is for the events that come between two Readys or messages of a node.
const traceRoom = 4096

// traceOracle keeps the traces of all Leases, by node and process, and checks them at the end
// of the run.
type traceOracle struct {
	processes []*leasetrace.Process // in the order of their starts
	newest    map[uint64]*tracing
}

// tracing is a trace that is being read.
type tracing struct {
	*leasetrace.Process
	from *leasetrace.Trace
}

func (o *traceOracle) init() { o.newest = make(map[uint64]*tracing) }

// begin gives the next process of a node its trace.
func (o *traceOracle) begin(id uint64) *leasetrace.Trace {
	o.take(id)
	t := &tracing{Process: &leasetrace.Process{Ended: true}, from: leasetrace.New(traceRoom)}
	o.newest[id] = t
	o.processes = append(o.processes, t.Process)
	return t.from
}

// take reads what a node's present process has traced.
func (o *traceOracle) take(id uint64) {
	if t := o.newest[id]; t != nil {
		t.Take(t.from)
	}
}

// all returns the traces of the run.
func (o *traceOracle) all() (all []leasetrace.Process) {
	for id := range o.newest {
		o.take(id)
	}
	for _, p := range o.processes {
		all = append(all, *p)
	}
	return all
}

// judgeTraces checks that the rules allow every event.
func (s *sim) judgeTraces() {
	if !s.cfg.Trace {
		return
	}
	if s.res.Traces = s.traces.all(); len(s.res.Traces) == 0 {
		return // no member has the library
	}
	v := leasetrace.Judge(s.res.Traces)
	s.res.Judged += uint64(v.Events())
	if err := v.Err(); err != nil && !s.cfg.Misused {
		s.violatef("trace", 0, "%v", err)
	}
}

func (s *sim) takeTrace(n *leasetest.Node) {
	if s.cfg.Trace {
		s.traces.take(n.ID)
	}
}
