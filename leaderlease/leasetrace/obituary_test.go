package leasetrace_test

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// leaderDied returns the traces of a leader and a follower. The leader's process 7 dies; the
// follower campaigns, and receives the death notice once more.
func leaderDied(t *testing.T) []leasetrace.Process {
	t.Helper()
	storage := raft.NewMemoryStorage()
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	if err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}}); err != nil {
		t.Fatal(err)
	}
	leader, voter := newMember(t, 1, storage, time.Hour), newMember(t, 2, storage, 2*time.Hour)
	leader.becomes(raft.StateLeader, 2, 1)
	voter.becomes(raft.StateFollower, 2, 1)
	beat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(2))}
	leader.Ready(&raft.Ready{Messages: []*raftpb.Message{beat}})
	voter.Incoming(beat, leaderlease.ProcessID{7})
	voter.ProcessDied(1, leaderlease.ProcessID{6})
	m, ok := voter.ProcessDied(1, leaderlease.ProcessID{7})
	if !ok || !voter.Incoming(m, leaderlease.ProcessID{}) {
		t.Fatalf("ProcessDied() = %v, %v, or it is not let in", m, ok)
	}
	voter.Incoming(beat, leaderlease.ProcessID{7})
	ask := &raftpb.Message{Type: raftpb.MsgVote.Enum(), From: new(uint64(2)), To: new(uint64(3)), Term: new(uint64(3)), Context: []byte("CampaignTransfer")}
	voter.Ready(&raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}, HardState: hardState(3), Messages: []*raftpb.Message{ask}})
	if voter.ProcessDied(1, leaderlease.ProcessID{7}); ask.GetType() != raftpb.MsgVote {
		t.Fatal("the request for a vote was withheld")
	}
	return traces(leader, voter)
}

// No member sends the request that a death notice causes, so the notice must come before it.
func TestADeathNoticeIsJudged(t *testing.T) {
	v := leasetrace.Judge(leaderDied(t))
	if err := v.Err(); err != nil || v.Unmatched > 0 || v.Kinds[leasetrace.KindProcessDied] != 3 || v.Kinds[leasetrace.KindCandidacy] != 1 {
		t.Errorf("%v, %v, want three death notices and a candidacy", err, v)
	}
	const voter = 1
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, p *leasetrace.Process)
		want   string
	}{
		{"a notice of an earlier process that voids", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 1).OK = true }, "the promise is void"},
		{"a notice that voids nothing", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 2).OK = false }, "the promise is void"},
		{"a promise to another process", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindPromise, 1).Number = 8 }, "the promise is void"},
		{"a missing notice", func(t *testing.T, p *leasetrace.Process) { drop(p, find(t, p, leasetrace.KindProcessDied, 2)) }, "no death notice has voided"},
		{"a notice of another leader", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindRequest, 1).Peer = 3 }, "no death notice has voided"},
		{"a promise to a dead process", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindPromise, 2).OK = true }, "the promise is made: true, want false"},
		{"another release in a vote", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindCandidacy, 1).Number = 1 }, "it passes on"},
		{"a notice that voids in a later term", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 3).OK = true }, "the promise is void"},
	} {
		all := leaderDied(t)
		tc.change(t, &all[voter])
		if v := leasetrace.Judge(all); v.Refused == nil || !strings.Contains(v.Refused.Error(), tc.want) {
			t.Errorf("%s: %v, want a refusal that says %q", tc.name, v, tc.want)
		}
	}
}
