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

// bereavement is what a follower tells of whose leader, a process 7, has died: it campaigns, and
// hears of the obituary once more.
func bereavement(t *testing.T) []leasetrace.Process {
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

// What is made of an obituary nobody has sent, and is judged by the obituary.
func TestAnObituaryIsJudged(t *testing.T) {
	v := leasetrace.Judge(bereavement(t))
	if err := v.Err(); err != nil || v.Unmatched > 0 || v.Kinds[leasetrace.KindProcessDied] != 3 || v.Kinds[leasetrace.KindCandidacy] != 1 {
		t.Errorf("%v, %v, want three obituaries and a candidacy", err, v)
	}
	const voter = 1
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, p *leasetrace.Process)
		want   string
	}{
		{"a former process's that voids", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 1).OK = true }, "the promise is void"},
		{"one that voids nothing", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 2).OK = false }, "the promise is void"},
		{"a promise to another process", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindPromise, 1).Number = 8 }, "the promise is void"},
		{"one that nobody was told of", func(t *testing.T, p *leasetrace.Process) { drop(p, find(t, p, leasetrace.KindProcessDied, 2)) }, "no obituary has voided"},
		{"one of another leader", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindRequest, 1).Peer = 3 }, "no obituary has voided"},
		{"a promise to the dead", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindPromise, 2).OK = true }, "the promise is made: true, want false"},
		{"another release in a vote", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindCandidacy, 1).Number = 1 }, "it passes on"},
		{"one that voids in a later term", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 3).OK = true }, "the promise is void"},
	} {
		all := bereavement(t)
		tc.change(t, &all[voter])
		if v := leasetrace.Judge(all); v.Refused == nil || !strings.Contains(v.Refused.Error(), tc.want) {
			t.Errorf("%s: %v, want a refusal that says %q", tc.name, v, tc.want)
		}
	}
}
