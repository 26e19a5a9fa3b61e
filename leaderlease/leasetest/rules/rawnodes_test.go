package rules

import (
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
)

// A candidate wins by the votes of others while its own term and vote are not durable,
// replicates an entry to one of them and crashes. It comes back in the older term, gets the same
// votes again, and leads the same term again. It then commits another entry than the first
// follower has under the same index and term. This is docs/raft-durability.md as a program.
func TestCommittedLogsDiverge(t *testing.T) {
	asItIs, held := divergence(t, false), divergence(t, true)
	if asItIs[1] == asItIs[2] {
		t.Errorf("as raft is: members 1 and 2 have committed%s both, want different logs: this program no longer shows the defect", asItIs[1])
	}
	if held[1] != held[2] || held[2] != held[3] {
		t.Errorf("with votes held: committed%s, %s and %s, want one log", held[1], held[2], held[3])
	}
	t.Logf("as raft is: member 1 has committed%s, member 2%s, member 3%s", asItIs[1], asItIs[2], asItIs[3])
	t.Logf("votes held: member 1 has committed%s, member 2%s, member 3%s", held[1], held[2], held[3])
}

// divergence returns what each member knows to be committed in the end.
func divergence(t *testing.T, holdVotes bool) map[uint64]string {
	c := newVoters(t, 1, 2, 3)
	c.holdVotes = holdVotes

	// The disk of 3 hangs. Its appends reach member 1 only.
	c.members[3].stuck = true
	c.lose = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp && m.GetTo() == 2 }
	c.campaign(3)
	first := c.leads(3)
	c.propose(3, "x")

	// It crashes. Member 1 is out of reach for a moment when it is back.
	c.restart(3)
	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 1 || m.GetTo() == 1 }
	c.campaign(3)
	second := c.leads(3)
	c.propose(3, "y")
	c.lose = none
	c.tick(3, 3)

	if twice := first != 0 && first == second; twice == holdVotes {
		t.Errorf("votes held %v: member 3 leads term %d, and term %d after its restart", holdVotes, first, second)
	}
	return map[uint64]string{1: c.committed(1), 2: c.committed(2), 3: c.committed(3)}
}

// It is not enough if a candidate sends its requests early and waits for its own durable vote:
// a MsgVote also describes the log. The votes may reach the next incarnation, after it has lost
// entries that the votes were given for. It then leads without a committed entry.
func TestOwnVoteFirstIsNotEnough(t *testing.T) {
	c := lateVotes(t, false)
	if c.leads(3) == 0 || c.committed(3) == c.committed(1) {
		t.Errorf("as raft is: member 3 leads term %d with%s committed, want it to lead without the last of%s", c.leads(3), c.committed(3), c.committed(1))
	}
	c.lose = none
	c.tick(3, 3)
	if one, three := c.committed(1), c.committed(3); len(strings.Fields(three)) != len(strings.Fields(one)) || one == three {
		t.Errorf("as raft is: member 1 has committed%s, member 3%s, want as many entries and another last one", one, three)
	}
	if c := lateVotes(t, true); c.leads(3) != 0 {
		t.Errorf("votes held: member 3 leads term %d, want no votes for it", c.leads(3))
	}
}

func lateVotes(t *testing.T, holdVotes bool) *group {
	c := newVoters(t, 1, 2, 3)
	c.holdVotes, c.noPreVote = holdVotes, true
	for _, id := range c.ids {
		c.start(id) // without PreVote, for shortness
	}
	c.elect(1)
	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 3 && m.GetType() == raftpb.MsgAppResp }
	c.members[3].stuck = true
	c.propose(1, "z") // committed by 1 and 2, under way to the disk of 3

	// 3 asks for votes, with z in its log. They are late.
	c.keep = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgVoteResp && m.GetTo() == 3 }
	c.campaign(3)

	// Without z, it asks again. No majority would give it a vote now.
	c.restart(3)
	c.keep = none
	c.lose = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgVote || m.GetType() == raftpb.MsgApp }
	c.campaign(3)
	if c.leads(3) != 0 {
		t.Fatal("member 3 leads without any vote")
	}
	c.deliverLate()
	return c
}

// A leader of two members removes itself, with a longer log than the remaining voter, which does
// not know yet that it is alone. No member crashes, two messages are lost, and no member can be
// elected any more.
func TestARemovedLeaderWithALongerLogBlocksElections(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		c := newVoters(t, 1, 2)
		c.elect(1)
		_ = c.members[1].raw.ProposeConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(1))})
		rd := c.members[1].raw.Ready()
		if !quiet {
			_ = c.members[1].raw.Propose([]byte("x"))
		}
		c.ready(1, rd) // 2 has the change, and x is the leader's alone
		c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 1 && m.GetType() == raftpb.MsgApp }
		c.settle()
		c.lose = none
		for range 20 {
			c.tick(1, 20)
			c.tick(2, 20)
		}
		if led := c.leads(2) != 0; led != quiet {
			t.Errorf("leader silent %v: member 2 leads %v, want %v; it is %v", quiet, led, quiet, c.members[2].raw.BasicStatus().RaftState)
		}
	}
}

// A sole voter with a volatile commit index answers reads below the entries that it acknowledged
// before it crashed: raft does not wait for a commit of the new term if no other voter exists.
func TestASoleVoterAnswersBelowWhatItAcknowledged(t *testing.T) {
	c := newVoters(t, 1)
	c.elect(1)
	c.propose(1, "x")
	acknowledged := c.members[1].raw.BasicStatus().GetCommit()
	// The last write that carried a commit index was that of x itself.
	hard, _, err := c.members[1].log.InitialState()
	must(err)
	must(c.members[1].log.SetHardState(&raftpb.HardState{Term: hard.Term, Vote: hard.Vote, Commit: new(acknowledged - 1)}))
	c.restart(1)
	_ = c.members[1].raw.Campaign()
	for c.leads(1) == 0 {
		c.ready(1, c.members[1].raw.Ready())
	}
	c.members[1].stuck = true // the first entry of its term is under way
	c.members[1].raw.ReadIndex([]byte("r1"))
	c.settle()
	if reads := c.members[1].reads; len(reads) != 1 || reads[0].Index >= acknowledged {
		t.Errorf("reads answered: %v, want one below %d: this program no longer shows the defect", reads, acknowledged)
	}
	if c.members[1].raw.BasicStatus().RaftState != raft.StateLeader {
		t.Error("member 1 does not lead")
	}
}

// group is a cluster for directed tests: bare RawNodes with AsyncStorageWrites,
// nothing between them but a filter, and no time but Tick.
type group struct {
	t       *testing.T
	members map[uint64]*member
	// ids in the order in which members are served.
	ids       []uint64
	holdVotes bool
	noPreVote bool
	recovers  bool // the rule RecoverCommit
	// lose says which messages never arrive. late are kept for later, if keep says
	// so.
	lose, keep func(*raftpb.Message) bool
	late       []*raftpb.Message
}

type member struct {
	log    *raft.MemoryStorage
	raw    *raft.RawNode // nil while it is down
	stuck  bool          // writes do not become durable
	early  bool          // changes are acknowledged and not applied
	torn   bool          // it dies between the entries of a write and the hard state
	writes []*raftpb.Message
	reads  []raft.ReadState
}

// newVoters returns a group of voters.
func newVoters(t *testing.T, ids ...uint64) *group { return newGroup(t, ids) }

// newGroup returns a group with spares, which have the log of the voters.
func newGroup(t *testing.T, ids []uint64, spares ...uint64) *group {
	c := &group{t: t, members: make(map[uint64]*member), ids: slices.Concat(ids, spares), lose: none, keep: none}
	for _, id := range c.ids {
		store := raft.NewMemoryStorage()
		must(store.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: ids},
		}}))
		must(store.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}))
		c.members[id] = &member{log: store}
		c.start(id)
	}
	return c
}

func none(*raftpb.Message) bool { return false }

func (c *group) start(id uint64) {
	m := c.members[id]
	var store raft.Storage = m.log
	if c.recovers {
		store = leaderlease.RecoverCommit(store)
	}
	raw, err := raft.NewRawNode(&raft.Config{
		ID: id, ElectionTick: 10, HeartbeatTick: 1, Storage: store, AsyncStorageWrites: true, MaxSizePerMsg: 1 << 20,
		MaxInflightMsgs: 16, PreVote: !c.noPreVote, CheckQuorum: !c.noPreVote, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	must(err)
	m.raw = raw
}

// restart restarts a member without its writes under way.
func (c *group) restart(id uint64) {
	m := c.members[id]
	m.writes, m.stuck, m.torn = nil, false, false
	c.start(id)
}

// settle lets messages flow until all members are idle.
func (c *group) settle() {
	for again := true; again; {
		again = false
		for _, id := range c.ids {
			for m := c.members[id]; m.raw != nil && m.raw.HasReady(); again = true {
				c.ready(id, m.raw.Ready())
			}
		}
	}
}

func (c *group) ready(id uint64, rd raft.Ready) {
	m := c.members[id]
	m.reads = append(m.reads, rd.ReadStates...)
	var votes []*raftpb.Message
	for _, msg := range rd.Messages {
		switch {
		case c.holdVotes && msg.GetType() == raftpb.MsgVote:
			votes = append(votes, msg)
		case msg.GetTo() == raft.LocalAppendThread:
			msg.Responses = slices.Concat(votes, msg.GetResponses())
			m.writes = append(m.writes, msg)
			c.write(id)
			if m.raw == nil {
				return
			}
		case msg.GetTo() == raft.LocalApplyThread:
			c.apply(m, msg)
		default:
			c.send(msg)
		}
	}
}

// write makes durable what waits, unless the disk is stuck.
func (c *group) write(id uint64) {
	m := c.members[id]
	for !m.stuck && len(m.writes) > 0 {
		w := m.writes[0]
		m.writes = m.writes[1:]
		if m.torn && len(w.GetEntries()) > 0 {
			must(m.log.Append(w.GetEntries()))
			m.raw = nil
			return
		}
		if w.GetTerm() != 0 {
			must(m.log.SetHardState(&raftpb.HardState{Term: w.Term, Vote: w.Vote, Commit: w.Commit}))
		}
		must(m.log.Append(w.GetEntries()))
		c.respond(m, w.GetResponses())
	}
}

func (c *group) apply(m *member, msg *raftpb.Message) {
	for _, e := range msg.GetEntries() {
		if e.GetType() == raftpb.EntryConfChange && !m.early {
			cc := &raftpb.ConfChange{}
			must(proto.Unmarshal(e.GetData(), cc))
			m.raw.ApplyConfChange(cc)
		}
	}
	c.respond(m, msg.GetResponses())
}

func (c *group) respond(m *member, msgs []*raftpb.Message) {
	for _, msg := range msgs {
		if c.members[msg.GetTo()] == m {
			_ = m.raw.Step(msg)
			continue
		}
		c.send(msg)
	}
}

func (c *group) send(m *raftpb.Message) {
	to := c.members[m.GetTo()]
	switch {
	case c.lose(m):
	case c.keep(m):
		c.late = append(c.late, m)
	case to != nil && to.raw != nil:
		_ = to.raw.Step(proto.CloneOf(m))
	}
}

// deliverLate delivers the kept messages to the processes that run now.
func (c *group) deliverLate() {
	late := c.late
	c.late, c.keep = nil, none
	for _, m := range late {
		c.send(m)
	}
	c.settle()
}

func (c *group) campaign(id uint64) {
	_ = c.members[id].raw.Campaign()
	c.settle()
}

func (c *group) propose(id uint64, data string) {
	_ = c.members[id].raw.Propose([]byte(data))
	c.settle()
}

func (c *group) tick(id uint64, times int) {
	for range times {
		c.members[id].raw.Tick()
		c.settle()
	}
}

// leads reports the term that a member leads, 0 if it leads none.
func (c *group) leads(id uint64) uint64 {
	if st := c.members[id].raw.BasicStatus(); st.RaftState == raft.StateLeader {
		return st.GetTerm()
	}
	return 0
}

// elect makes a member lead, or fails the test.
func (c *group) elect(id uint64) {
	c.t.Helper()
	c.campaign(id)
	if c.leads(id) == 0 {
		c.t.Fatalf("member %d does not lead", id)
	}
}

// committed is what a member knows to be committed, as text: "term:data" each.
func (c *group) committed(id uint64) string {
	m := c.members[id]
	var text strings.Builder
	for i := uint64(2); i <= m.raw.BasicStatus().GetCommit(); i++ {
		es, err := m.log.Entries(i, i+1, 1<<20)
		must(err)
		fmt.Fprintf(&text, " %d:%s", es[0].GetTerm(), es[0].GetData())
	}
	return text.String()
}

// Member 1 leads five voters and acknowledges changes before it applies them. Members 5
// and then 4 are removed. Then 1, 4 and 5 commit by the first configuration, and 2 and 3
// by the last one. A leader that applies changes first counts as they do.
func TestAChangeThatIsAcknowledgedEarlyForksTheGroup(t *testing.T) {
	for _, early := range []bool{false, true} {
		c := newVoters(t, 1, 2, 3, 4, 5)
		c.elect(1)
		c.members[1].early = early
		for _, gone := range []uint64{5, 4} {
			must(c.members[1].raw.ProposeConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(gone)}))
			c.settle()
		}
		old := []uint64{1, 4, 5}
		c.lose = func(m *raftpb.Message) bool {
			return slices.Contains(old, m.GetFrom()) != slices.Contains(old, m.GetTo())
		}
		before := c.committed(1)
		c.propose(1, "x")
		for range 100 {
			c.tick(2, 1)
			c.tick(3, 1)
		}
		next := uint64(2)
		if c.leads(2) == 0 {
			next = 3
		}
		if c.leads(next) == 0 {
			t.Fatalf("early %v: neither 2 nor 3 leads", early)
		}
		c.propose(next, "y")
		if forked := c.committed(1) != before; forked != early {
			t.Errorf("early %v: member 1 has committed%q, member %d%q", early, c.committed(1), next, c.committed(next))
		}
		t.Logf("early %v: member 1 has committed%q, member %d%q", early, c.committed(1), next, c.committed(next))
	}
}

// Members 4 and 5 join {1, 2, 3} one after the other. Member 1 gets both changes in one
// append and is killed between the entries and the hard state. It then counts votes as
// before both changes: {1, 2} elect it, while 3 leads {3, 4, 5}. The log proves that the
// first change is committed, so that 1 needs one of {3, 4} as well.
func TestTornChangesElectASecondLeader(t *testing.T) {
	asItIs, proven := tornChanges(t, false), tornChanges(t, true)
	if asItIs.leads(1) == 0 || asItIs.committed(1) == asItIs.committed(3) {
		t.Errorf("as raft is: member 1 leads term %d and has committed%s, member 3%s, want another log: this program no longer shows the defect",
			asItIs.leads(1), asItIs.committed(1), asItIs.committed(3))
	}
	if proven.leads(1) != 0 {
		t.Errorf("with the commit index that the log proves: member 1 leads term %d beside member 3", proven.leads(1))
	}
	proven.lose = none
	proven.elect(4)
	if one, three := proven.committed(1), proven.committed(3); one != three {
		t.Errorf("with the commit index that the log proves: member 1 has committed%s, member 3%s, want one log", one, three)
	}
}

func tornChanges(t *testing.T, recovers bool) *group {
	c := newGroup(t, []uint64{1, 2, 3}, 4, 5)
	c.recovers, c.noPreVote = recovers, true
	for _, id := range c.ids {
		c.start(id) // without PreVote, for shortness
	}
	c.elect(3)
	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 1 || m.GetTo() == 1 }
	for _, id := range []uint64{4, 5} {
		_ = c.members[3].raw.ProposeConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(id)})
		c.settle()
	}
	c.lose = none
	c.members[1].torn = true
	c.tick(3, 2)
	if c.members[1].raw != nil {
		t.Fatal("member 1 has got no append")
	}
	c.restart(1)
	c.settle()

	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() <= 2 != (m.GetTo() <= 2) }
	c.propose(3, "y")
	c.campaign(1)
	return c
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
