package leasetest

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A change of membership was acknowledged, so the removed member is switched off. The
// remaining member is killed before its next write, and must not wait for the other's vote.
func TestAChangeOutlivesACrash(t *testing.T) {
	for _, v := range []struct {
		name           string
		async, forgets bool
		want           bool
	}{
		{"synchronous", false, false, true},
		{"with AsyncStorageWrites", true, false, true},
		{"without the commit index on disk", false, true, false},
		{"the same with AsyncStorageWrites", true, true, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := pair(t, NodeOptions{Async: v.async, ForgetsChanges: v.forgets, DiskDelay: func() time.Duration { return 5 * time.Millisecond }})
			one, two := c.Node(1), c.Node(2)
			remove(one, 2)
			if !c.RunUntil(time.Second, func() bool { return len(one.Conf().GetVoters()) == 1 }) {
				t.Fatalf("node 1 has configuration %v, want itself alone", one.Conf())
			}
			two.Crash(0)
			one.Crash(0)
			one.Restart()
			if got := c.RunUntil(20*time.Second, func() bool { return c.Leader() == one }); got != v.want {
				t.Errorf("node 1 leads after the restart: %v, want %v: configuration %v", got, v.want, one.Conf())
			}
		})
	}
}

// A leader removes itself from a group of two, with writes behind the change, and the news
// that the change is committed is lost. The other member needs its vote, but the leader's
// longer log refuses it.
func TestALeaderThatRemovedItselfIsSucceeded(t *testing.T) {
	for _, v := range []struct {
		name         string
		mute, crash  bool
		async, later bool
		want         bool
	}{
		{name: "both members stay up", want: true},
		{name: "with AsyncStorageWrites", async: true, want: true},
		{name: "both are killed", crash: true, want: true},
		{name: "terms have moved on", later: true, want: true},
		{name: "vote answers carry no commit index", mute: true},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := pair(t, NodeOptions{Async: v.async, NoCommitHints: v.mute})
			one, two := c.Node(1), c.Node(2)
			removedUnheard(t, c)
			if v.crash {
				one.Crash(0)
				two.Crash(0)
				one.Restart()
				two.Restart()
			}
			if v.later {
				two.exec(func() {
					_ = two.raw.Step(&raftpb.Message{Type: raftpb.MsgPreVoteResp.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(two.Term() + 5), Reject: new(true)})
				})
			}
			if got := c.RunUntil(20*time.Second, func() bool { return c.Leader() == two }); got != v.want {
				t.Errorf("node 2 leads: %v, want %v: it has configuration %v and applied %d, node 1 %v and %d",
					got, v.want, two.Conf(), two.Applied(), one.Conf(), one.Applied())
			}
		})
	}
}

// A commit hint counts only if the log has the same entry, and it makes no member a leader.
func TestACommitHintOfAnotherEntryIsIgnored(t *testing.T) {
	c := pair(t, NodeOptions{NoCommitHints: true})
	removedUnheard(t, c)
	one, two := c.Node(1), c.Node(2)
	c.Net.Split([]uint64{1}, []uint64{2})
	if !c.RunUntil(20*time.Second, func() bool { return two.Raw().BasicStatus().Lead == raft.None }) {
		t.Fatal("node 2 follows a leader that is gone")
	}
	before, change, term := two.Raw().BasicStatus().GetCommit(), one.Applied(), one.Term()
	for _, v := range []struct {
		name        string
		index, term uint64
		want        uint64
	}{
		{"of another term", change, term - 1, before},
		{"behind the end of the log", change + 7, term, before},
		{"of the same entry", change, term, change},
	} {
		two.exec(func() {
			two.stepRaw(&raftpb.Message{
				Type: raftpb.MsgPreVoteResp.Enum(), From: new(uint64(1)), To: new(uint64(2)),
				Term: new(two.Term()), Reject: new(true), Commit: new(v.index), RejectHint: new(v.term),
			})
		})
		s := two.Raw().BasicStatus()
		if s.GetCommit() != v.want || s.Lead != raft.None {
			t.Errorf("%s: the commit index is %d and the leader %d, want %d and none", v.name, s.GetCommit(), s.Lead, v.want)
		}
	}
}

// pair returns a group of nodes 1, which leads, and 2.
func pair(t *testing.T, opts NodeOptions) *Cluster {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	c := New(Options{Voters: []uint64{1, 2}, Node: func(uint64) NodeOptions { return opts }})
	if !c.Elect(1) {
		t.Fatal("Elect(1) = false")
	}
	c.Run(time.Second)
	return c
}

func remove(l *Node, id uint64) {
	l.Change(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(id)})
}

// removedUnheard makes node 1 remove itself. Node 2 receives the change, but nothing behind
// it, and does not learn that it is committed.
func removedUnheard(t *testing.T, c *Cluster) {
	t.Helper()
	one, two := c.Node(1), c.Node(2)
	change := uint64(0)
	c.Net.Plan = func(m *raftpb.Message) []time.Duration {
		for _, e := range m.GetEntries() {
			if e.GetType() != raftpb.EntryNormal {
				change = e.GetIndex()
			}
		}
		if m.GetFrom() == 1 && change > 0 && (m.GetCommit() >= change || m.GetIndex() >= change) {
			return nil
		}
		return []time.Duration{time.Millisecond}
	}
	remove(one, 1)
	one.Write(1, 1, func(uint64) {})
	if !c.RunUntil(time.Second, func() bool { return len(one.Conf().GetVoters()) == 1 }) {
		t.Fatalf("node 1 has configuration %v, want node 2 alone", one.Conf())
	}
	if got := len(two.Conf().GetVoters()); got != 2 {
		t.Fatalf("node 2 has %d voters, want 2: it was not to hear", got)
	}
	c.Net.Plan = nil
}
