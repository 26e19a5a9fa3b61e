package leasetrace_test

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

const ms = time.Millisecond

// hand is a clock that the test sets.
type hand struct{ now leaderlease.Instant }

func (h *hand) Now() leaderlease.Instant { return h.now }

// member is a real Lease that receives Readys and messages from the test.
type member struct {
	*leaderlease.Lease
	t     *testing.T
	id    uint64
	clock *hand
	trace *leasetrace.Trace
	term  uint64
	// commit is the newest committed index: first that of the snapshot, if there is one.
	commit uint64
}

func newMember(t *testing.T, id uint64, storage *raft.MemoryStorage, started time.Duration) *member {
	t.Helper()
	m := &member{t: t, id: id, clock: &hand{now: leaderlease.Instant(started)}, trace: leasetrace.New(1000)}
	var err error
	if m.commit, err = storage.LastIndex(); err != nil {
		t.Fatal(err)
	}
	if m.Lease, err = leaderlease.New(config(m, storage)); err != nil {
		t.Fatal(err)
	}
	return m
}

func config(m *member, storage *raft.MemoryStorage) leaderlease.Config {
	return leaderlease.Config{
		Raft: &raft.Config{
			ID: m.id, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxInflightMsgs: 1,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		},
		TickInterval: 100 * ms, Clock: m.clock, Tracer: m.trace,
	}
}

func hardState(term uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Commit: new(uint64(1))}
}

// becomes passes a Ready with a new role of raft and newly committed entries.
func (m *member) becomes(role raft.StateType, term, leader uint64, committed ...*raftpb.Entry) {
	m.term = term
	for _, e := range committed {
		m.commit = e.GetIndex()
	}
	m.Ready(&raft.Ready{
		SoftState: &raft.SoftState{Lead: leader, RaftState: role}, HardState: &raftpb.HardState{Term: new(term), Commit: new(m.commit)},
		Entries: committed, CommittedEntries: committed,
	})
}

// sends lets a message leave and arrive, and reports whether it did both.
func (m *member) sends(kind raftpb.MessageType, to *member) bool {
	msg := &raftpb.Message{Type: kind.Enum(), From: new(m.id), To: new(to.id), Term: new(m.term)}
	rd := raft.Ready{Messages: []*raftpb.Message{msg}}
	m.Ready(&rd)
	return len(rd.Messages) == 1 && to.Incoming(msg, leaderlease.ProcessID{})
}

// renews lets one round of heartbeats and answers pass.
func (m *member) renews(voters ...*member) {
	for _, v := range voters {
		v.term = m.term
		m.sends(raftpb.MsgHeartbeat, v)
		v.sends(raftpb.MsgHeartbeatResp, m)
	}
}

// story returns traces of a lease that is gained, renewed, and lost in a partition. Then
// another leader is elected, as soon as the promises allow.
func story(t *testing.T) []leasetrace.Process {
	t.Helper()
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	all := make([]*member, 3)
	for i := range all {
		storage := raft.NewMemoryStorage()
		snap := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}}
		if err := storage.ApplySnapshot(snap); err != nil {
			t.Fatal(err)
		}
		all[i] = newMember(t, uint64(i+1), storage, time.Duration(i+1)*time.Hour)
	}
	pass := func(d time.Duration) {
		for _, m := range all {
			m.clock.now = m.clock.now.Add(d)
		}
	}
	first := func(term uint64) *raftpb.Entry { return &raftpb.Entry{Term: new(term), Index: new(term)} }
	old, voter, next := all[0], all[1], all[2]
	old.becomes(raft.StateLeader, 2, 1, first(2))
	voter.becomes(raft.StateFollower, 2, 1, first(2))
	next.becomes(raft.StateFollower, 2, 1, first(2))
	for range 3 {
		pass(100 * ms)
		old.renews(voter, next)
	}
	if _, s := old.TryRead(); s != leaderlease.StatusValid {
		t.Fatalf("the leader's lease is %v, want valid", s)
	}
	pass(100 * ms)
	next.becomes(raft.StatePreCandidate, 2, 0)
	if next.sends(raftpb.MsgPreVote, voter) {
		t.Fatal("a bound node asks for votes")
	}
	pass(900 * ms)
	old.Tick()
	next.becomes(raft.StateCandidate, 3, 0)
	if !next.sends(raftpb.MsgVote, voter) {
		t.Fatal("the request for a vote is withheld after the promises have ended")
	}
	voter.becomes(raft.StateFollower, 3, 0)
	voter.sends(raftpb.MsgVoteResp, next)
	next.becomes(raft.StateLeader, 3, 3, first(3))
	next.renews(voter, old)
	old.becomes(raft.StateFollower, 3, 3, first(3))
	return traces(all...)
}

func traces(all ...*member) []leasetrace.Process {
	ps := make([]leasetrace.Process, len(all))
	for i, m := range all {
		ps[i].Take(m.trace)
		ps[i].Ended = true
	}
	return ps
}

// find returns the event of process p that is the nth of its kind.
func find(t *testing.T, p *leasetrace.Process, k leasetrace.Kind, nth int) *leasetrace.Event {
	t.Helper()
	for i := range p.Events {
		if p.Events[i].Kind == k {
			if nth--; nth == 0 {
				return &p.Events[i]
			}
		}
	}
	t.Fatalf("%v has too few events of kind %v", p, k)
	return nil
}

// drop removes an event without a trace.
func drop(p *leasetrace.Process, e *leasetrace.Event) {
	p.Events = slices.DeleteFunc(slices.Clone(p.Events), func(o leasetrace.Event) bool { return o.Seq == e.Seq })
	for i := range p.Events {
		p.Events[i].Seq = uint64(i + 1)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
