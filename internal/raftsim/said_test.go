package raftsim

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// By design, raft sends some data before it is durable: see the table in
// docs/raft-durability.md. The test counts it, and fails if a new version of raft changes it.
func TestWhatLeavesBeforeItIsDurable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector, which finds nothing in one goroutine")
	}
	type words struct{ term, entry, commit bool }
	asItIs := map[raftpb.MessageType]words{
		raftpb.MsgProp:          {},
		raftpb.MsgApp:           {term: true, entry: true, commit: true},
		raftpb.MsgAppResp:       {},
		raftpb.MsgVote:          {term: true, entry: true},
		raftpb.MsgVoteResp:      {},
		raftpb.MsgSnap:          {term: true, commit: true},
		raftpb.MsgHeartbeat:     {term: true, commit: true},
		raftpb.MsgHeartbeatResp: {term: true},
		raftpb.MsgTimeoutNow:    {term: true},
		raftpb.MsgReadIndex:     {},
		raftpb.MsgReadIndexResp: {term: true, commit: true},
		raftpb.MsgPreVote:       {entry: true},
		raftpb.MsgPreVoteResp:   {},
	}
	held := map[raftpb.MessageType]words{
		raftpb.MsgApp:           {entry: true, commit: true},
		raftpb.MsgVote:          {},
		raftpb.MsgSnap:          {commit: true},
		raftpb.MsgHeartbeat:     {commit: true},
		raftpb.MsgTimeoutNow:    {},
		raftpb.MsgReadIndexResp: {commit: true},
	}
	for _, tc := range []struct {
		rules Rules
		want  map[raftpb.MessageType]words
	}{{Rules{CompactByRaft: true, OwnTermReads: true}, asItIs}, {AllRules(), held}} {
		said := &Said{}
		for seed := uint64(1); seed <= 30; seed++ {
			said.Add(&Run(t, Config{Seed: seed, Rules: tc.rules, Tolerate: "led twice"}).Said)
		}
		t.Logf("%+v\n%v", tc.rules, said)
		for kind, want := range tc.want {
			n := said[kind]
			got := words{n.Term > 0, n.Entry > 0, n.Commit > 0}
			// Whatever may be so need not happen in so few messages.
			if got.term && !want.term || got.entry && !want.entry || got.commit && !want.commit {
				t.Errorf("%+v: %v spoke of what was not durable: %+v in %d messages, want at most %+v", tc.rules, kind, got, n.Sent, want)
			}
		}
		if early := said[raftpb.MsgVote].Term > 0; early == tc.rules.HoldVotes {
			t.Errorf("%+v: MsgVote left before its term was durable: %v, want %v", tc.rules, early, !early)
		}
		if said[raftpb.MsgVoteResp].Sent == 0 || said[raftpb.MsgAppResp].Sent == 0 {
			t.Errorf("%+v: no votes or no appends were answered", tc.rules)
		}
	}
}
