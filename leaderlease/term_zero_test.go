package leaderlease

import (
	"io"
	"log"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A node that was bootstrapped from a snapshot, as raft recommends, and has heard
// of no term yet, cannot turn a pre-vote down: raft panics, since the rejection
// would carry term 0. Such a request comes from a candidate whose log is shorter:
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
