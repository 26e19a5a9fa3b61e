package transport

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// message is member 2's, to member 1, in term 3, unless change says otherwise.
func message(t raftpb.MessageType, change func(m *raftpb.Message)) *raftpb.Message {
	m := &raftpb.Message{Type: &t, From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(3))}
	if t == raftpb.MsgProp || t == raftpb.MsgReadIndex {
		m.Term = nil
	}
	if change != nil {
		change(m)
	}
	return m
}

func entry(index, term uint64) *raftpb.Entry { return &raftpb.Entry{Index: &index, Term: &term} }

// after makes m an append behind an entry.
func after(m *raftpb.Message, index, term uint64, ents ...*raftpb.Entry) {
	m.Index, m.LogTerm, m.Entries = &index, &term, ents
}

func changeEntry(cc *raftpb.ConfChangeV2) *raftpb.Entry {
	b, err := proto.Marshal(cc)
	must(err)
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: b}
}

func single(t raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
	return &raftpb.ConfChangeSingle{Type: &t, NodeId: &id}
}

func snapshotOf(index, term uint64, cs *raftpb.ConfState) func(*raftpb.Message) {
	return func(m *raftpb.Message) {
		m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: cs}}
	}
}

func voters(ids ...uint64) *raftpb.ConfState { return &raftpb.ConfState{Voters: ids} }

// hostile are messages that make raft panic.
var hostile = []struct {
	name string
	rule string
	role int
	m    *raftpb.Message
	// then are valid messages that follow; many faults show only later.
	then []*raftpb.Message
	// local steps are taken by the member itself at the end.
	local func(r *rig)
}{
	{name: "a vote in term 0", rule: "term", role: asOrphan, m: message(raftpb.MsgVote, func(m *raftpb.Message) {
		m.Term, m.LogTerm, m.Index = nil, new(uint64(9)), new(uint64(9))
	})},
	{name: "a pre-vote in term 0", rule: "term", role: asOrphan, m: message(raftpb.MsgPreVote, func(m *raftpb.Message) {
		m.Term, m.LogTerm, m.Index = nil, new(uint64(9)), new(uint64(9))
	})},
	{name: "a proposal with a term, to be passed on", rule: "term", role: asFollower, m: message(raftpb.MsgProp, func(m *raftpb.Message) {
		m.Term, m.Entries = new(uint64(3)), []*raftpb.Entry{{}}
	})},
	{name: "a read with a term, to be passed on", rule: "term", role: asFollower, m: message(raftpb.MsgReadIndex, func(m *raftpb.Message) {
		m.Term, m.Entries = new(uint64(3)), []*raftpb.Entry{{}}
	})},
	{name: "a negative type", rule: "type", role: asFollower, m: message(-1, nil)},
	{name: "a transfer that was passed on before", rule: "type", role: asFollower, m: message(raftpb.MsgTransferLeader, nil)},
	{name: "storage has applied an uncommitted entry", rule: "type", role: asFollower, m: message(raftpb.MsgStorageApplyResp, func(m *raftpb.Message) {
		m.From, m.Term, m.Entries = new(uint64(math.MaxUint64-1)), nil, []*raftpb.Entry{entry(9, 3)}
	})},
	{name: "a heartbeat from oneself", rule: "address", role: asFollower, m: message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.From = new(uint64(1)) })},
	{name: "a proposal after an append from oneself", rule: "address", role: asFollower, m: message(raftpb.MsgApp, func(m *raftpb.Message) {
		m.From = new(uint64(1))
	}), then: []*raftpb.Message{message(raftpb.MsgProp, func(m *raftpb.Message) { m.Entries = []*raftpb.Entry{{}} })}},
	{
		name: "a read of member 0, without a request", rule: "address", role: asLeader,
		m: message(raftpb.MsgReadIndex, func(m *raftpb.Message) { m.From = nil }),
		then: []*raftpb.Message{
			message(raftpb.MsgAppResp, func(m *raftpb.Message) { m.Index = new(uint64(7)) }),
			message(raftpb.MsgHeartbeatResp, func(m *raftpb.Message) { m.Context = []byte{1, 0, 0, 0, 0, 0, 0, 0} }),
		},
	},
	{name: "the last term of all", rule: "numbers", role: asFollower, m: message(raftpb.MsgHeartbeat, func(m *raftpb.Message) {
		m.Term = new(uint64(math.MaxUint64))
	}), local: func(r *rig) { must(r.node.ForgetLeader()); must(r.node.Campaign()); r.work() }},
	{name: "an acknowledgement of the last index of all", rule: "numbers", role: asLeader, m: message(raftpb.MsgAppResp, func(m *raftpb.Message) {
		m.Index = new(uint64(math.MaxUint64))
	})},
	{name: "a heartbeat's answer with half a position", rule: "context", role: asLeader, m: message(raftpb.MsgHeartbeatResp, func(m *raftpb.Message) {
		m.Context = []byte{1, 2, 3}
	})},
	{name: "an append with a gap before it", rule: "entries", role: asFollower, m: message(raftpb.MsgApp, func(m *raftpb.Message) {
		after(m, 6, 2, entry(9, 3))
	})},
	{name: "an append that begins within the committed log", rule: "entries", role: asFollower, m: message(raftpb.MsgApp, func(m *raftpb.Message) {
		after(m, 6, 2, entry(3, 3))
	})},
	{name: "an append with a gap in it", rule: "entries", role: asFollower, m: message(raftpb.MsgApp, func(m *raftpb.Message) {
		after(m, 6, 2, entry(7, 3), entry(9, 3))
		m.Commit = new(uint64(8))
	}), then: []*raftpb.Message{message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 7, 3, entry(8, 3)) })}},
	{name: "an append with an unreadable conf change", rule: "entries", role: asFollower, m: message(raftpb.MsgApp, func(m *raftpb.Message) {
		after(m, 6, 2, &raftpb.Entry{Index: new(uint64(7)), Term: new(uint64(3)), Type: raftpb.EntryConfChange.Enum(), Data: []byte("?")})
		m.Commit = new(uint64(7))
	})},
	{name: "an empty proposal", rule: "entries", role: asLeader, m: message(raftpb.MsgProp, nil)},
	{name: "an unreadable conf change", rule: "entries", role: asLeader, m: message(raftpb.MsgProp, func(m *raftpb.Message) {
		m.Entries = []*raftpb.Entry{{Type: raftpb.EntryConfChange.Enum(), Data: []byte("?")}}
	})},
	{name: "an unreadable conf change V2", rule: "entries", role: asLeader, m: message(raftpb.MsgProp, func(m *raftpb.Message) {
		m.Entries = []*raftpb.Entry{{Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte("?")}}
	})},
	{name: "a snapshot in which a member is voter and learner", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap,
		snapshotOf(9, 3, &raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{2}}))},
	{name: "a snapshot in which a voter is listed twice", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap, snapshotOf(9, 3, voters(1, 2, 2)))},
	{name: "a snapshot with voter 0", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap, snapshotOf(9, 3, voters(1, 2, 0)))},
	{name: "a snapshot without voters", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap, snapshotOf(9, 3, &raftpb.ConfState{Learners: []uint64{1}}))},
	{name: "a snapshot with future learners that are not voters", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap,
		snapshotOf(9, 3, &raftpb.ConfState{Voters: []uint64{1, 2}, LearnersNext: []uint64{3}}))},
	{name: "a snapshot with a learner among the outgoing voters", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap,
		snapshotOf(9, 3, &raftpb.ConfState{Voters: []uint64{1, 2}, VotersOutgoing: []uint64{1, 3}, Learners: []uint64{3}}))},
	{name: "a snapshot with AutoLeave that is not joint", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap,
		snapshotOf(9, 3, &raftpb.ConfState{Voters: []uint64{1, 2}, AutoLeave: new(true)}))},
	{name: "a snapshot of the last index of all", rule: "snapshot", role: asFollower, m: message(raftpb.MsgSnap,
		snapshotOf(math.MaxUint64, 3, voters(1, 2))), then: []*raftpb.Message{message(raftpb.MsgApp, func(m *raftpb.Message) {
		after(m, 6, 2, entry(7, 3))
	})}},
	{name: "a conf change of unknown transition", rule: "entries", role: asFollower, m: commit(changeEntry(&raftpb.ConfChangeV2{
		Transition: new(raftpb.ConfChangeTransition(7)), Changes: []*raftpb.ConfChangeSingle{single(raftpb.ConfChangeAddNode, 4)},
	}))},
	{name: "entering a joint configuration without changes", rule: "entries", role: asFollower, m: commit(
		changeEntry(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{single(raftpb.ConfChangeAddNode, 4), single(raftpb.ConfChangeAddNode, 5)}}),
		changeEntry(&raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionJointExplicit.Enum()}),
	)},
	{name: "a heartbeat that commits beyond the log", rule: "commit", role: asFollower, m: message(raftpb.MsgHeartbeat, func(m *raftpb.Message) {
		m.Commit = new(uint64(7))
	})},
	{name: "a heartbeat that commits beyond a candidate's log", rule: "commit", role: asCandidate, m: message(raftpb.MsgHeartbeat, func(m *raftpb.Message) {
		m.Commit = new(uint64(7))
	})},
	{name: "an acknowledgement beyond the log", rule: "acknowledged", role: asLeader, m: message(raftpb.MsgAppResp, func(m *raftpb.Message) {
		m.Index = new(uint64(100))
	}), then: []*raftpb.Message{message(raftpb.MsgHeartbeatResp, nil)}, local: func(r *rig) { must(r.node.Propose([]byte("x"))); r.work() }},
}

// commit appends and commits entries behind the rig's log.
func commit(ents ...*raftpb.Entry) *raftpb.Message {
	return message(raftpb.MsgApp, func(m *raftpb.Message) {
		for i, e := range ents {
			e.Index, e.Term = new(uint64(7+i)), new(uint64(3))
		}
		after(m, 6, 2, ents...)
		m.Commit = new(uint64(6 + len(ents)))
	})
}

// Each rule is there because raft panics without it.
func TestRaftPanicsWithoutTheRule(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(c.role)
			err := Validate(c.m, 2, 1)
			if err == nil {
				err = ValidateAgainst(c.m, r.lastIndex())
			}
			if inv, ok := errors.AsType[*InvalidError](err); !ok || inv.Rule != c.rule {
				t.Errorf("Validate() = %v, want rule %q", err, c.rule)
			}
			defer func() {
				if p := recover(); p == nil {
					t.Errorf("raft as %s took %v", roleNames[c.role], c.m)
				} else {
					t.Logf("refused: %v; raft: %.200v", err, p)
				}
			}()
			r.step(proto.CloneOf(c.m))
			for _, m := range c.then {
				r.step(proto.CloneOf(m))
			}
			if c.local != nil {
				c.local(r)
			}
		})
	}
}

// odd are messages that raft survives, and which are refused for other reasons.
var odd = []struct {
	name string
	rule string
	m    *raftpb.Message
}{
	{"no message", "nil", nil},
	{"no type, which is MsgHup", "type", &raftpb.Message{}},
	{"a type from the future", "type", message(raftpb.MessageType(99), nil)},
	{"the order to forget the leader", "type", message(raftpb.MsgForgetLeader, nil)},
	{"the report that a peer is unreachable", "type", message(raftpb.MsgUnreachable, nil)},
	{"in another member's name", "address", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.From = new(uint64(3)) })},
	{"to another member", "address", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.To = new(uint64(3)) })},
	{"a granted vote of no term", "term", message(raftpb.MsgVoteResp, func(m *raftpb.Message) { m.Term = nil })},
	{"an order to campaign of no term", "term", message(raftpb.MsgTimeoutNow, func(m *raftpb.Message) { m.Term = nil })},
	{"a vote with a context of its own", "context", message(raftpb.MsgVote, func(m *raftpb.Message) { m.Context = []byte("please") })},
	{"a pre-vote that claims a transfer", "context", message(raftpb.MsgPreVote, func(m *raftpb.Message) { m.Context = []byte(campaignTransfer) })},
	{"an append with a context", "context", message(raftpb.MsgApp, func(m *raftpb.Message) { m.Context = make([]byte, 8) })},
	{"a heartbeat with 9 bytes of context", "context", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Context = make([]byte, 9) })},
	{"responses", "foreign", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Responses = []*raftpb.Message{{}} })},
	{"a vote in a heartbeat", "foreign", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Vote = new(uint64(2)) })},
	{"a snapshot in a heartbeat", "foreign", message(raftpb.MsgHeartbeat, snapshotOf(9, 3, voters(1, 2)))},
	{"entries in a heartbeat", "entries", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Entries = []*raftpb.Entry{{}} })},
	{"a read with 2 requests", "entries", message(raftpb.MsgReadIndex, func(m *raftpb.Message) { m.Entries = []*raftpb.Entry{{}, {}} })},
	{"a read with a long request", "entries", message(raftpb.MsgReadIndex, func(m *raftpb.Message) {
		m.Entries = []*raftpb.Entry{{Data: make([]byte, maxReadContext+1)}}
	})},
	{"an append with decreasing terms", "entries", message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 6, 3, entry(7, 2)) })},
	{"an append from a later term", "entries", message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 6, 2, entry(7, 4)) })},
	{"an append behind a later term", "entries", message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 6, 4) })},
	{"an entry of term 0", "entries", message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 0, 0, entry(1, 0)) })},
	{"an append behind an index without a term", "entries", message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 6, 0) })},
	{"an entry of unknown type", "entries", message(raftpb.MsgProp, func(m *raftpb.Message) {
		m.Entries = []*raftpb.Entry{{Type: new(raftpb.EntryType(3))}}
	})},
	{"a conf change of unknown type", "entries", message(raftpb.MsgProp, func(m *raftpb.Message) {
		m.Entries = []*raftpb.Entry{changeEntry(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{single(9, 4)}})}
	})},
	{"a conf change of a storage thread", "entries", message(raftpb.MsgProp, func(m *raftpb.Message) {
		m.Entries = []*raftpb.Entry{changeEntry(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{single(raftpb.ConfChangeAddNode, math.MaxUint64)}})}
	})},
	{"a snapshot of nothing", "snapshot", message(raftpb.MsgSnap, nil)},
	{"a snapshot without a configuration", "snapshot", message(raftpb.MsgSnap, snapshotOf(9, 3, nil))},
	{"a snapshot of term 0", "snapshot", message(raftpb.MsgSnap, snapshotOf(9, 0, voters(1, 2)))},
	{"a snapshot of a later term", "snapshot", message(raftpb.MsgSnap, snapshotOf(9, 4, voters(1, 2)))},
	{"a snapshot without this member", "snapshot", message(raftpb.MsgSnap, snapshotOf(9, 3, voters(2, 3)))},
	{"a snapshot of too many members", "snapshot", message(raftpb.MsgSnap, snapshotOf(9, 3, crowd()))},
}

func crowd() *raftpb.ConfState {
	cs := &raftpb.ConfState{}
	for id := range uint64(maxMembers + 1) {
		cs.Voters = append(cs.Voters, id+1)
	}
	return cs
}

func TestOddMessagesAreRefused(t *testing.T) {
	for _, c := range odd {
		t.Run(c.name, func(t *testing.T) {
			err := Validate(c.m, 2, 1)
			if inv, ok := errors.AsType[*InvalidError](err); !ok || inv.Rule != c.rule {
				t.Errorf("Validate() = %v, want rule %q", err, c.rule)
			}
		})
	}
}

// Both sides of the edges that the tables above do not touch.
func TestWhatMembersSendIsValid(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *raftpb.Message
	}{
		{"a heartbeat", message(raftpb.MsgHeartbeat, nil)},
		{"a heartbeat that confirms reads", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Context = make([]byte, 8) })},
		{"its answer", message(raftpb.MsgHeartbeatResp, func(m *raftpb.Message) { m.Context = make([]byte, 8) })},
		{"a vote", message(raftpb.MsgVote, nil)},
		{"a vote of a transfer", message(raftpb.MsgVote, func(m *raftpb.Message) { m.Context = []byte(campaignTransfer) })},
		{"a refused pre-vote", message(raftpb.MsgPreVoteResp, func(m *raftpb.Message) { m.Reject = new(true) })},
		{"a refused vote that says what is committed", message(raftpb.MsgVoteResp, func(m *raftpb.Message) {
			m.Reject, m.Commit, m.RejectHint = new(true), new(uint64(6)), new(uint64(2))
		})},
		{"an order to campaign", message(raftpb.MsgTimeoutNow, nil)},
		{"an empty snapshot of an old member", message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Snapshot = &raftpb.Snapshot{} })},
		{"the first append", message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 0, 0, entry(1, 1), entry(2, 3)) })},
		{"an append of nothing", message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 6, 2) })},
		{"leaving a joint configuration", message(raftpb.MsgProp, func(m *raftpb.Message) {
			m.Entries = []*raftpb.Entry{{Type: raftpb.EntryConfChangeV2.Enum()}}
		})},
		{"a conf change that was made void", message(raftpb.MsgProp, func(m *raftpb.Message) {
			m.Entries = []*raftpb.Entry{changeEntry(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{single(raftpb.ConfChangeAddNode, 0)}})}
		})},
		{"a read of the lease library", message(raftpb.MsgReadIndex, func(m *raftpb.Message) {
			m.Entries = []*raftpb.Entry{{Data: make([]byte, 16)}}
		})},
		{"its answer", message(raftpb.MsgReadIndexResp, func(m *raftpb.Message) {
			m.Index, m.Entries = new(uint64(7)), []*raftpb.Entry{{Data: make([]byte, 16)}}
		})},
		{"a snapshot", message(raftpb.MsgSnap, snapshotOf(9, 3, voters(1, 2, 3)))},
		{"a snapshot for a learner", message(raftpb.MsgSnap, snapshotOf(9, 3, &raftpb.ConfState{Voters: []uint64{2, 3}, Learners: []uint64{1}}))},
		{"a joint snapshot", message(raftpb.MsgSnap, snapshotOf(9, 3, &raftpb.ConfState{
			Voters: []uint64{1, 2, 3}, VotersOutgoing: []uint64{1, 2, 4, 6}, Learners: []uint64{5}, LearnersNext: []uint64{4}, AutoLeave: new(true),
		}))},
		{"a rejected append", message(raftpb.MsgAppResp, func(m *raftpb.Message) {
			m.Reject, m.Index, m.RejectHint, m.LogTerm = new(true), new(uint64(100)), new(uint64(6)), new(uint64(2))
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Validate(c.m, 2, 1)
			if err == nil {
				err = ValidateAgainst(c.m, 7)
			}
			if err != nil {
				t.Errorf("Validate() = %v, want nil", err)
			}
		})
	}
}

// The message names the value and the limit.
func TestInvalidErrorsNameValueAndLimit(t *testing.T) {
	err := ValidateAgainst(message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Commit = new(uint64(8)) }), 7)
	for _, want := range []string{"MsgHeartbeat", "8", "7"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("ValidateAgainst() = %q, want it to name %s", err, want)
		}
	}
}
