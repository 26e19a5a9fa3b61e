package leasetest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// judge checks a play against the claim of docs/design.md. No view passes its check after
// an election in a later term is won; a term has one leading process; and the index of a
// view that passes is not below any applied index.
type judge struct {
	nodes []*Node
	// led is the winner of each term, wonTerm the newest term that each process has won,
	// newest the newest term that is won.
	led     map[uint64]process
	wonTerm map[process]uint64
	newest  uint64
	// applied is the newest applied index of all nodes.
	applied uint64
	// resigned are the processes that have resigned, resignedAt is the time of the last
	// resignation.
	resigned   map[process]bool
	resignedAt time.Duration
	// doubtful is set if a clock breaks the assumptions, so that only rounds are checked.
	doubtful bool

	bad   string
	goals uint64
}

type process struct {
	id  uint64
	run int
}

func (j *judge) watch(c *Cluster) {
	j.nodes, j.led, j.wonTerm, j.resigned = c.nodes, make(map[uint64]process), make(map[process]uint64), make(map[process]bool)
	won := c.OnLeader
	c.OnLeader = func(n *Node, term uint64) {
		j.won(n, term)
		won(n, term)
	}
	c.OnApply = func(_ *Node, e *raftpb.Entry, _ Outcome) { j.applied = max(j.applied, e.GetIndex()) }
	c.OnDeliver = func(*Node, *raftpb.Message) { j.check() }
	c.OnReady = func(*Node, []*raftpb.Message) { j.check() }
}

func (j *judge) won(n *Node, term uint64) {
	p := process{n.ID, n.run}
	if first, again := j.led[term]; again && first != p {
		j.fail("process %d of node %d wins term %d, which process %d of node %d has won", p.run, p.id, term, first.run, first.id)
	}
	j.led[term], j.wonTerm[p] = p, term
	j.newest = max(j.newest, term)
	j.check()
}

// check checks each view as a reader does.
func (j *judge) check() {
	if j.doubtful {
		return
	}
	for _, n := range j.nodes {
		if !n.up || n.paused || n.lease == nil {
			continue
		}
		index, s := n.lease.TryRead()
		if s != leaderlease.StatusValid {
			continue
		}
		if term := j.wonTerm[process{n.ID, n.run}]; term < j.newest {
			j.fail("node %d holds the lease of term %d when term %d is won", n.ID, term, j.newest)
		}
		if j.resigned[process{n.ID, n.run}] {
			j.fail("node %d holds a lease, and has resigned", n.ID)
		}
		if index < j.applied {
			j.fail("node %d reads under the lease up to index %d, and %d is applied", n.ID, index, j.applied)
		}
	}
}

func (j *judge) fail(format string, v ...any) {
	if j.bad == "" {
		j.bad = fmt.Sprintf(format, v...)
	}
}

// after checks the output of a directive.
func (j *judge) after(out string) {
	j.check()
	for line := range strings.Lines(out) {
		stale := strings.Contains(line, "STALE") && (!j.doubtful || !strings.Contains(line, "by lease"))
		if stale || strings.Contains(line, "WRONG") {
			j.fail("%s", strings.TrimSpace(line))
		}
	}
}

// resigns records resignations, by the output of a directive.
func (p *play) resigns(out string) {
	for _, n := range p.c.nodes {
		if strings.HasSuffix(out, fmt.Sprintf(": node %d resigns\n", n.ID)) {
			run := process{n.ID, n.run}
			p.resigned[run], p.resignedAt = true, p.c.Now()
			if p.wonTerm[run] == 0 {
				p.fail("node %d resigns, and has never led", n.ID)
			}
		}
	}
}

// guards checks single rules, where another rule would hide a violation. V3 and V4 stand in
// for each other: a bound node lets no message in, and none out, that helps an election.
func (p *play) guards() {
	ready, admit, applied, deliver := p.c.OnReady, p.c.OnAdmit, p.c.OnApply, p.c.OnDeliver
	p.c.OnApply = func(n *Node, e *raftpb.Entry, made Outcome) {
		applied(n, e, made)
		p.members()
	}
	p.c.OnDeliver = func(n *Node, m *raftpb.Message) {
		deliver(n, m)
		p.members()
	}
	p.c.OnAdmit = func(n *Node, m *raftpb.Message) {
		admit(n, m)
		if asksForHelp(m) || grants(m) {
			p.checkGuard(n, m, "reaches raft")
		}
	}
	p.c.OnTick = p.ticks
	p.c.OnReady = func(n *Node, msgs []*raftpb.Message) {
		ready(n, msgs)
		p.members()
		for _, m := range msgs {
			if n.helps(m) {
				p.checkGuard(n, m, "leaves")
			}
		}
	}
}

func (p *play) checkGuard(n *Node, m *raftpb.Message, what string) {
	if m := n.mistake(); m != NoMistake && m != SendsCopy && !m.isAboutConf() {
		return
	}
	if n.Bound() {
		p.fail("%v %s at node %d, which is bound", m.GetType(), what, n.ID)
	}
}

// ticks checks the half of V5 that WouldBlock stands in for: raft does not tick if the tick
// would elect a bound node.
func (p *play) ticks(n *Node) {
	alone := len(n.conf.GetVoters()) == 1 && n.conf.GetVoters()[0] == n.ID && len(n.conf.GetVotersOutgoing()) == 0
	if alone && n.mistake() == NoMistake && n.role != raft.StateLeader && n.Bound() {
		p.fail("raft ticks at node %d, which is bound and the only voter", n.ID)
	}
}

// members checks L4 and L5 alone, because raft's own rules stand in for them. A node that
// has applied its own removal has no lease, and no node has one between the Ready with a
// change and ApplyConfState.
func (p *play) members() {
	for _, n := range p.c.nodes {
		if !n.up || n.paused || !n.Valid() {
			continue
		}
		if !slices.Contains(n.conf.GetVoters(), n.ID) && !slices.Contains(n.conf.GetVotersOutgoing(), n.ID) {
			p.fail("node %d holds a lease, and is no voter", n.ID)
		}
		// Where the next entry is a change, a call for that entry is taken for the change's result.
		if n.handed > n.made && n.handed > n.confIndex && n.mistake() != RepeatsConf {
			p.fail("node %d holds a lease, and has not made the change at %d", n.ID, n.handed)
		}
	}
}

func asksForHelp(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:
		return true
	default:
		return false
	}
}

func grants(m *raftpb.Message) bool {
	return !m.GetReject() && (m.GetType() == raftpb.MsgVoteResp || m.GetType() == raftpb.MsgPreVoteResp)
}

// helps reports whether m, or a response of the storage thread to it, helps an election. A
// granted pre-vote helps only if it is the node's own.
func (n *Node) helps(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return true
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return grants(m) && (m.GetType() == raftpb.MsgVoteResp || m.GetTo() == n.ID)
	case raftpb.MsgStorageAppend:
		return slices.ContainsFunc(m.GetResponses(), n.helps)
	}
	return false
}

// goal is a situation that a search must reach, or else it proves little.
type goal int

const (
	goalLease goal = iota
	goalExpired
	goalSecond
	goalAtOnce
	goalBound
	goalHeld
	goalReleased
	goalRecovered
	goalConf
	goalHealed
	goalJoined
	goalRound
	goalForwarded
	goalShared
	goalAhead
	goalResigned
	goalForgone
	goalVoided
	goalFormer
	goalNode1
	numGoals
)

var goalNames = [numGoals]string{
	"a lease is held", "a lease has run out", "a second leader has a lease", "a leader is elected at once", "a promise keeps a vote away",
	"a restart hold keeps a vote away", "a bound voter that is released votes", "a lease is held again after a fault of the clock",
	"a lease is held under another configuration", "a lease is held again after a change without ApplyConfState",
	"a read is answered by a renewal", "a read is answered by a round", "a follower reads", "two reads share a round",
	"a follower reads while the leader applies", "a leader that resigns is replaced at once", "a leader leads on after it has resigned",
	"a leader that has died is replaced at once", "a death notice of an earlier process voids nothing", "node 1 holds a lease",
}

func (j *judge) reach(g goal, seen bool) {
	if seen {
		j.goals |= 1 << g
	}
}

// survey notes the goals that a state reaches.
func (p *play) survey() {
	for _, n := range p.c.nodes {
		if p.resigned[process{n.ID, n.run}] {
			p.reach(goalForgone, n.up && n.role == raft.StateLeader && p.c.Now()-p.resignedAt > 300*time.Millisecond)
		}
		if n.up && n.lease != nil {
			p.surveyLease(n)
		}
	}
}

func (p *play) surveyLease(n *Node) {
	i, s := n.lease.Info(), n.lease.Stats()
	other := len(n.conf.GetVoters()) != len(p.c.opts.Voters)
	p.reach(goalLease, i.Valid())
	p.reach(goalNode1, i.Valid() && n.ID == 1)
	p.reach(goalExpired, i.Status == leaderlease.StatusExpired)
	p.reach(goalSecond, i.Valid() && len(p.led) > 1)
	p.reach(goalRecovered, i.Valid() && s.ClockFaults > 0)
	p.reach(goalConf, i.Valid() && other)
	p.reach(goalHealed, i.Valid() && other && p.missed == n.ID)
	votes := s.Withheld.VoteIn + s.Withheld.PreVoteIn
	p.reach(goalBound, votes > 0 && i.Promise.Hold == 0)
	p.reach(goalHeld, votes > 0 && i.Promise.Hold > 0)
	p.reach(goalFormer, s.Deaths > s.VoidedPromises && i.Promise.Remaining > 0)
	p.reach(goalShared, i.Waiting > 1 && s.Rounds == 1)
}

// heard notes the goals that a script prints.
func (p *play) heard(out string) {
	p.reach(goalJoined, strings.Contains(out, "by joined"))
	p.reach(goalRound, strings.Contains(out, "by read_index"))
	forwarded := strings.Contains(out, "by forwarded")
	p.reach(goalForwarded, forwarded)
	leader := p.c.Leader()
	p.reach(goalAhead, forwarded && leader != nil && leader.Applied() < leader.raw.BasicStatus().GetCommit())
}

// watchVotes notes votes of voters that were bound until they were released.
func (p *play) watchVotes() {
	bound := make(map[*raftpb.Message]bool)
	check := p.c.OnDeliver
	p.c.OnDeliver = func(n *Node, m *raftpb.Message) {
		check(n, m)
		if m.GetType() == raftpb.MsgVote {
			bound[m] = n.Bound()
		}
	}
	p.c.OnAdmit = func(_ *Node, m *raftpb.Message) { p.reach(goalReleased, bound[m]) }
	won := p.c.OnLeader
	p.c.OnLeader = func(n *Node, term uint64) {
		p.reach(goalAtOnce, p.c.Now() < 50*time.Millisecond)
		p.reach(goalVoided, n.lease.Stats().VoidedPromises > 0 && p.c.Now() < 200*time.Millisecond)
		p.reach(goalResigned, len(p.resigned) > 0 && p.c.Now()-p.resignedAt < 50*time.Millisecond)
		won(n, term)
	}
}

// key is a hash of the visible state.
type key [sha256.Size]byte

// key hashes the visible state of every node, of the messages and events under way, and of
// the script. States with equal keys may differ in hidden state of raft or the Lease; the
// search then follows only one of them.
func (p *play) key() key {
	h := sha256.New()
	for _, n := range p.c.nodes {
		n.see(h)
	}
	for _, m := range p.c.Net.held {
		_, _ = fmt.Fprintln(h, describeMessage(m), m.GetIndex(), m.GetCommit(), len(m.GetEntries()))
	}
	// The order of events at the same instant is ignored.
	due := make([]time.Duration, 0, len(p.c.world.events))
	for _, e := range p.c.world.events {
		due = append(due, e.at-p.c.world.now)
	}
	slices.Sort(due)
	_, _ = fmt.Fprintln(h, due, p.c.Net.cut, p.delays, p.disk, p.apply, p.written, p.open, len(p.contexts), len(p.works))
	for _, m := range p.held {
		_, _ = fmt.Fprint(h, *m)
	}
	return key(h.Sum(nil))
}

// see writes the visible state of a node.
func (n *Node) see(w io.Writer) {
	if !n.up {
		s, _, err := n.disk.InitialState()
		must(err)
		_, _ = fmt.Fprintln(w, "down", s.GetTerm(), s.GetVote(), s.GetCommit(), n.lastEntry(), n.Clock.within != nil)
		return
	}
	s := n.raw.BasicStatus()
	_, _ = fmt.Fprintln(w, s.SoftState, s.GetTerm(), s.GetVote(), s.GetCommit(), s.Applied, s.LeadTransferee, n.lastEntry(),
		n.Applied(), n.Hash(), n.conf.String(), n.paused, n.busy, n.lags, len(n.asked), n.missed, n.confIndex, n.handed, n.made, len(n.inbox), len(n.unsynced), len(n.appends.jobs), len(n.applies.jobs))
	_, _ = fmt.Fprintln(w, timers(n), n.Clock.rate, n.Clock.stopped, n.Clock.failed, n.Clock.within != nil, n.mistake(), n.Options.FilterOnArrival)
	if n.lease == nil {
		return
	}
	i := n.lease.Info()
	_, _ = fmt.Fprintln(w, i.Term, i.Leader, i.Role, i.Status, i.Remaining, i.EndsIn, i.Promise, i.Commit, i.Applied, i.Waiting, i.Err)
	for _, peer := range i.Peers {
		_, _ = fmt.Fprintln(w, peer)
	}
}

// timers returns raft's internal timers.
func timers(n *Node) (t [3]int64) {
	r := reflect.ValueOf(n.raw).Elem().FieldByName("raft").Elem()
	for i, name := range []string{"electionElapsed", "heartbeatElapsed", "randomizedElectionTimeout"} {
		t[i] = r.FieldByName(name).Int()
	}
	return t
}

func (n *Node) lastEntry() string {
	index, err := n.disk.LastIndex()
	must(err)
	term, err := n.disk.Term(index)
	must(err)
	return fmt.Sprint(index, "/", term)
}
