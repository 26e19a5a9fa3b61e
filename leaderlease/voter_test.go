package leaderlease

import (
	"io"
	"log"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// layer is one place that keeps a bound node from helping a candidate to win. Most
// schedules pass several, so each is looked at by itself.
type layer struct {
	name string
	// role is what raft is in, alone whether the node is the only voter.
	role  raft.StateType
	alone bool
	// passes reports whether the layer lets the node take part.
	passes func(p *puppet) bool
	// shut is what shuts it.
	shut by
}

type by int

const (
	nothing by = iota
	promise    // every promise
	grant      // those that their leader was told of
)

// comesIn reports whether Incoming lets a message of node 3 in, in the next term.
func comesIn(typ raftpb.MessageType, reject bool) func(*puppet) bool {
	return func(p *puppet) bool {
		m := p.message(typ, 3, 1)
		m.Term, m.Reject = new(p.term+1), new(reject)
		return p.Incoming(m)
	}
}

// goesOut reports whether Ready lets a message to a node out.
func goesOut(typ raftpb.MessageType, to uint64, reject bool) func(*puppet) bool {
	return func(p *puppet) bool {
		m := p.message(typ, 1, to)
		m.Reject = new(reject)
		return len(p.Ready(raft.Ready{Messages: []*raftpb.Message{m}})) == 1
	}
}

// isDelivered reports the same of what the storage thread delivers.
func isDelivered(typ raftpb.MessageType, to uint64, reject bool) func(*puppet) bool {
	return func(p *puppet) bool {
		m := p.message(typ, 1, to)
		m.Reject = new(reject)
		write := &raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(), To: new(raft.LocalAppendThread), Responses: []*raftpb.Message{m}}
		p.Ready(raft.Ready{Messages: []*raftpb.Message{write}})
		return len(write.GetResponses()) == 1
	}
}

func isNotHeldBack(role raft.StateType) func(*puppet) bool {
	return func(p *puppet) bool {
		return !p.WouldBlock(raft.Ready{SoftState: &raft.SoftState{RaftState: role}})
	}
}

func layers() (all []layer) {
	const follower, candidate, pre = raft.StateFollower, raft.StateCandidate, raft.StatePreCandidate
	add := func(name string, passes func(*puppet) bool, shut by) {
		for _, role := range []raft.StateType{follower, pre, candidate} {
			all = append(all, layer{name + ", " + role.String(), role, strings.Contains(name, "alone"), passes, shut})
		}
	}
	add("a vote asked of it", comesIn(raftpb.MsgVote, false), promise)
	add("a pre-vote asked of it", comesIn(raftpb.MsgPreVote, false), promise)
	add("a transfer to it", comesIn(raftpb.MsgTimeoutNow, false), promise)
	add("a vote for it", comesIn(raftpb.MsgVoteResp, false), promise)
	add("a pre-vote for it", comesIn(raftpb.MsgPreVoteResp, false), promise)
	add("a vote it is refused", comesIn(raftpb.MsgVoteResp, true), nothing)
	add("a pre-vote it is refused", comesIn(raftpb.MsgPreVoteResp, true), nothing)
	add("a vote it asks for", goesOut(raftpb.MsgVote, 3, false), promise)
	add("a pre-vote it asks for", goesOut(raftpb.MsgPreVote, 3, false), promise)
	add("its vote", goesOut(raftpb.MsgVoteResp, 3, false), promise)
	add("its vote for itself", goesOut(raftpb.MsgVoteResp, 1, false), promise)
	add("its pre-vote, which makes nobody a leader", goesOut(raftpb.MsgPreVoteResp, 3, false), nothing)
	add("its pre-vote for itself", goesOut(raftpb.MsgPreVoteResp, 1, false), promise)
	add("its refusal", goesOut(raftpb.MsgVoteResp, 3, true), nothing)
	add("its vote, from the storage thread", isDelivered(raftpb.MsgVoteResp, 3, false), promise)
	add("its vote for itself, from there", isDelivered(raftpb.MsgVoteResp, 1, false), promise)
	add("its pre-vote for itself, from there", isDelivered(raftpb.MsgPreVoteResp, 1, false), promise)
	add("its refusal, from there", isDelivered(raftpb.MsgVoteResp, 3, true), nothing)
	add("its tick, one of three", func(p *puppet) bool { return p.Tick() }, nothing)
	add("its tick, alone", func(p *puppet) bool { return p.Tick() }, promise)
	add("its own pre-candidacy, alone", isNotHeldBack(pre), grant)
	add("its campaign", func(p *puppet) bool { return p.CanCampaign() == nil }, promise)
	add("its own candidacy", isNotHeldBack(candidate), grant)
	add("its own pre-candidacy, one of three", isNotHeldBack(pre), nothing)
	return all
}

// Each layer is shut up to the last instant of what binds the node and open from
// then on, whatever raft's role is by then: a candidate is as bound as the follower
// that it was. Its own vote, which nothing can take back, is counted as soon as no
// grant that has left forbids it.
func TestEachLayerIsShutWhileBound(t *testing.T) {
	const granted, longer = 900 * ms, 1300 * ms
	for _, state := range []struct {
		name  string
		held  bool // it has restarted
		begin func(p *puppet)
		ends  [3]time.Duration // of what binds it, by what it shuts
	}{
		{"free", false, func(*puppet) {}, [3]time.Duration{}},
		{"restarted", true, func(*puppet) {}, [3]time.Duration{promise: granted, grant: granted}},
		{"promised", false, func(p *puppet) { p.promiseTo(2) }, [3]time.Duration{promise: granted}},
		{"granted", false, func(p *puppet) { p.promiseTo(2); p.grantTo(2) }, [3]time.Duration{promise: granted, grant: granted}},
		{"granted, and promised for longer since", false, func(p *puppet) {
			p.promiseTo(2)
			p.grantTo(2)
			p.clock.Advance(longer - granted)
			p.promiseTo(2)
		}, [3]time.Duration{promise: longer, grant: granted}},
	} {
		for _, tt := range layers() {
			t.Run(state.name+"/"+tt.name, func(t *testing.T) {
				p := newPuppet(t, func(c *Config) { c.Raft.Storage = past(t, tt.alone, state.held) })
				start := p.clock.reading.Load()
				p.follow(2, 2)
				state.begin(p)
				if tt.role != raft.StateFollower {
					p.ready(&raft.Ready{SoftState: &raft.SoftState{RaftState: tt.role}})
				}
				end := state.ends[tt.shut]
				for _, at := range []time.Duration{max(end-1, 0), end} {
					p.clock.reading.Store(start + int64(at))
					if got := tt.passes(p); got != (at >= end) {
						t.Errorf("%v after the start, bound for %v, it passes: %t, want %t", at, end, got, at >= end)
					}
				}
			})
		}
	}
}

// past is the storage of one of three voters, or of the only one.
func past(t *testing.T, alone, restarted bool) raft.Storage {
	t.Helper()
	voters := []uint64{1, 2, 3}
	if alone {
		voters = voters[:1]
	}
	s := bootstrapped(t, voters...)
	if restarted {
		if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// grantTo lets the grant of the newest promise leave.
func (p *puppet) grantTo(leader uint64) {
	p.t.Helper()
	before := p.Stats().Grants
	p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 1, leader)}})
	if p.Stats().Grants != before+1 {
		p.t.Fatal("Ready(heartbeat response) let no grant out")
	}
}

// A node that was bootstrapped from a snapshot, as raft recommends, and has heard
// of no term yet, cannot turn a pre-vote down: raft panics, since the rejection
// would carry term 0. Such a request comes from a candidate with a shorter log:
// one that was bootstrapped from an older snapshot.
func TestPreVoteOfAShorterLogAtTermZero(t *testing.T) {
	preVote := func(logTerm, index uint64) *raftpb.Message {
		return &raftpb.Message{
			Type: raftpb.MsgPreVote.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(4)),
			LogTerm: &logTerm, Index: &index,
		}
	}
	for _, tt := range []struct {
		name string
		m    *raftpb.Message
		in   bool
	}{
		{"an older snapshot", preVote(2, 9), false},
		{"a shorter log", preVote(3, 4), false},
		{"the same log", preVote(3, 5), true},
		{"a longer log", preVote(3, 6), true},
		{"a newer term", preVote(4, 1), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := puppetConfig(t)
			cfg.Raft.Logger = &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}
			storage := raft.NewMemoryStorage()
			if err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				Index: new(uint64(5)), Term: new(uint64(3)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
			}}); err != nil {
				t.Fatal(err)
			}
			cfg.Raft.Storage, cfg.Raft.Applied = storage, 5
			l, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := raft.NewRawNode(cfg.Raft)
			if err != nil {
				t.Fatal(err)
			}
			in := l.Incoming(tt.m, ProcessID{})
			if in != tt.in {
				t.Errorf("Incoming(pre-vote) = %t, want %t", in, tt.in)
			}
			if !tt.in && !panics(func() { _ = raw.Step(tt.m) }) {
				t.Error("raft does not panic any more: this rule is not needed")
			}
			if tt.in && panics(func() { _ = raw.Step(tt.m) }) {
				t.Error("Step(pre-vote) panics")
			}
			// Any message of a term ends that: raft can turn it down then.
			l.Ready(&raft.Ready{HardState: &raftpb.HardState{Term: new(uint64(4))}})
			if !l.Incoming(tt.m, ProcessID{}) {
				t.Error("Incoming(pre-vote) = false in term 4, want raft to answer")
			}
		})
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}
