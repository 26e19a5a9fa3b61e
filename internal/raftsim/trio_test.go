package raftsim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// trio is a cluster for directed tests: bare RawNodes with AsyncStorageWrites,
// nothing between them but a filter, and no time but Tick.
type trio struct {
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

func newTrio(t *testing.T, ids ...uint64) *trio { return newGroup(t, ids) }

// newGroup is a trio with spares, which have the log of the voters.
func newGroup(t *testing.T, ids []uint64, spares ...uint64) *trio {
	c := &trio{t: t, members: make(map[uint64]*member), ids: slices.Concat(ids, spares), lose: none, keep: none}
	for _, id := range c.ids {
		log := raft.NewMemoryStorage()
		must(log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: ids},
		}}))
		must(log.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}))
		c.members[id] = &member{log: log}
		c.start(id)
	}
	return c
}

func none(*raftpb.Message) bool { return false }

func (c *trio) start(id uint64) {
	m := c.members[id]
	var store raft.Storage = m.log
	if c.recovers {
		store = leaderlease.RecoverCommit(store)
	}
	raw, err := raft.NewRawNode(&raft.Config{
		ID: id, ElectionTick: 10, HeartbeatTick: 1, Storage: store, AsyncStorageWrites: true, MaxSizePerMsg: 1 << 20,
		MaxInflightMsgs: 16, PreVote: !c.noPreVote, CheckQuorum: !c.noPreVote, StepDownOnRemoval: true,
		Logger: &logger{s: &sim{}},
	})
	must(err)
	m.raw = raw
}

// restart loses what is not durable.
func (c *trio) restart(id uint64) {
	m := c.members[id]
	m.writes, m.stuck, m.torn = nil, false, false
	c.start(id)
}

// settle lets messages flow until all members are idle.
func (c *trio) settle() {
	for again := true; again; {
		again = false
		for _, id := range c.ids {
			for m := c.members[id]; m.raw != nil && m.raw.HasReady(); again = true {
				c.ready(id, m.raw.Ready())
			}
		}
	}
}

func (c *trio) ready(id uint64, rd raft.Ready) {
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
func (c *trio) write(id uint64) {
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

func (c *trio) apply(m *member, msg *raftpb.Message) {
	for _, e := range msg.GetEntries() {
		if cc := confChange(e); cc != nil && !m.early {
			m.raw.ApplyConfChange(cc)
		}
	}
	c.respond(m, msg.GetResponses())
}

func (c *trio) respond(m *member, msgs []*raftpb.Message) {
	for _, msg := range msgs {
		if c.members[msg.GetTo()] == m {
			_ = m.raw.Step(msg)
			continue
		}
		c.send(msg)
	}
}

func (c *trio) send(m *raftpb.Message) {
	to := c.members[m.GetTo()]
	switch {
	case c.lose(m):
	case c.keep(m):
		c.late = append(c.late, m)
	case to != nil && to.raw != nil:
		_ = to.raw.Step(copyOf(m))
	}
}

// deliverLate delivers the kept messages to the processes that run now.
func (c *trio) deliverLate() {
	late := c.late
	c.late, c.keep = nil, none
	for _, m := range late {
		c.send(m)
	}
	c.settle()
}

func (c *trio) campaign(id uint64) {
	_ = c.members[id].raw.Campaign()
	c.settle()
}

func (c *trio) propose(id uint64, data string) {
	_ = c.members[id].raw.Propose([]byte(data))
	c.settle()
}

func (c *trio) tick(id uint64, times int) {
	for range times {
		c.members[id].raw.Tick()
		c.settle()
	}
}

// leads reports the term that a member leads, 0 if it leads none.
func (c *trio) leads(id uint64) uint64 {
	if st := c.members[id].raw.BasicStatus(); st.RaftState == raft.StateLeader {
		return st.GetTerm()
	}
	return 0
}

// elect makes a member lead, or fails the test.
func (c *trio) elect(id uint64) {
	c.t.Helper()
	c.campaign(id)
	if c.leads(id) == 0 {
		c.t.Fatalf("member %d does not lead", id)
	}
}

// committed is what a member knows to be committed, as text: "term:data" each.
func (c *trio) committed(id uint64) string {
	m := c.members[id]
	var text strings.Builder
	for i := uint64(2); i <= m.raw.BasicStatus().GetCommit(); i++ {
		es, err := m.log.Entries(i, i+1, 1<<20)
		must(err)
		fmt.Fprintf(&text, " %d:%s", es[0].GetTerm(), es[0].GetData())
	}
	return text.String()
}
