package leasetest

import (
	"fmt"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
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
			c := pair(t, NodeOptions{Async: v.async, Without: Rules{DurableConf: v.forgets}, DiskDelay: func() time.Duration { return 5 * time.Millisecond }})
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
			c := pair(t, NodeOptions{Async: v.async, Without: Rules{CommitHints: v.mute}})
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
	c := pair(t, NodeOptions{Without: Rules{CommitHints: true}})
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

// A change of membership waits to be applied while raft restores a snapshot that includes
// it. Raft would apply it a second time: it panics if it leaves a joint configuration twice,
// and applies other changes silently.
func TestAChangeIsNotAppliedBehindASnapshot(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) { changeBehindASnapshot(t, async) })
	}
}

func changeBehindASnapshot(t *testing.T, async bool) {
	cryptotest.SetGlobalRandom(t, 1)
	var apply, disk time.Duration // of node 3
	c := New(Options{Voters: []uint64{1, 2, 3, 4}, Node: slowThird(async, &apply, &disk)})
	if !c.Elect(1) {
		t.Fatal("Elect(1) = false")
	}
	leader, late := c.Node(1), c.Node(3)
	leader.Change(&raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransitionJointExplicit.Enum(),
		Changes:    []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(4))}},
	})
	c.Run(time.Second)
	// Node 3 has the entry that leaves the joint configuration, and receives nothing later.
	last := leader.Applied() + 1
	c.Net.Hold = func(m *raftpb.Message) bool { return m.GetTo() == 3 && m.GetCommit() >= last }
	leader.Change(&raftpb.ConfChangeV2{})
	c.Run(10 * time.Millisecond)
	leader.Write(1, 1, func(uint64) {})
	c.Run(10 * time.Millisecond)
	leader.Compact()
	// The leader finds that it needs a snapshot. It learns that the entry is committed, and then
	// gets the snapshot.
	c.Net.DropHeld(nil)
	c.Net.Hold = func(m *raftpb.Message) bool { return m.GetTo() == 3 && m.GetType() != raftpb.MsgApp }
	leader.Write(1, 2, func(uint64) {})
	c.Run(200 * time.Millisecond)
	c.Net.Hold = OfType(raftpb.MsgSnap)
	apply = 500 * time.Millisecond
	c.Net.Release(OfType(raftpb.MsgHeartbeat))
	c.Run(10 * time.Millisecond)
	if got := late.Raw().BasicStatus().GetCommit(); got != last || len(late.Conf().GetVotersOutgoing()) == 0 || len(c.Net.Held()) == 0 {
		t.Fatalf("node 3 has commit index %d, want %d, configuration %v, want a joint one, and %d snapshots are under way, want some", got, last, late.Conf(), len(c.Net.Held()))
	}
	disk = time.Second
	c.Net.Hold = nil
	c.Net.Release(nil)
	c.Run(10 * time.Second)
	if got, want := late.Conf().GetVoters(), []uint64{1, 2, 3}; len(late.Conf().GetVotersOutgoing()) > 0 || !slices.Equal(got, want) {
		t.Errorf("node 3 has configuration %v, want voters %v", late.Conf(), want)
	}
	if late.Version(1) != leader.Version(1) {
		t.Errorf("node 3 has version %d of the key, the leader %d", late.Version(1), leader.Version(1))
	}
}

// slowThird has node 3 take as long as apply and disk say.
func slowThird(async bool, apply, disk *time.Duration) func(id uint64) NodeOptions {
	return func(id uint64) NodeOptions {
		if id != 3 {
			return NodeOptions{}
		}
		return NodeOptions{
			Async:      async,
			ApplyDelay: func() time.Duration { return *apply },
			DiskDelay:  func() time.Duration { return *disk },
		}
	}
}

// With AsyncStorageWrites, a candidate without the library may request votes for a term that
// it then forgets in a crash, because raft does not wait for the disk (V9). Restarted with the
// library and without AsyncStorageWrites, it promises to the leader of the earlier term. The
// late votes must not elect it now (V3). Before the fix, node 2 led term 2 while node 1 read
// under the lease of term 1.
func TestVotesOfALostTermElectNoBoundNode(t *testing.T) {
	for phase := range 20 {
		if votesOfALostTerm(t, time.Duration(phase)*50*time.Millisecond) {
			return
		}
	}
	t.Fatal("no phase brought the schedule about")
}

// votesOfALostTerm reports whether the schedule came about.
func votesOfALostTerm(t *testing.T, phase time.Duration) bool {
	cryptotest.SetGlobalRandom(t, 1)
	var disk time.Duration
	c := New(Options{Node: func(id uint64) NodeOptions {
		if id != 2 {
			return NodeOptions{}
		}
		return NodeOptions{Kind: Plain, Without: Rules{HoldVotes: true}, Async: true, DiskDelay: func() time.Duration { return disk }}
	}})
	if !c.Elect(1) {
		t.Fatal("Elect(1) = false")
	}
	c.Run(time.Second + phase)
	leader, candidate, voter := c.Node(1), c.Node(2), c.Node(3)
	c.Net.Split([]uint64{1}, []uint64{2, 3})
	c.Run(910 * time.Millisecond) // the promises are over
	if leader.Role() != raft.StateLeader || candidate.Role() != raft.StateFollower || voter.Role() != raft.StateFollower {
		return false
	}

	late := lateAnswers(c, &disk)
	voter.ForgetLeader()
	candidate.Campaign()
	c.Run(10 * time.Millisecond)
	if len(*late) < 2 {
		return false
	}
	candidate.Crash(0)
	disk = 0
	candidate.Options.Kind, candidate.Options.Async = Library, false
	candidate.Restart()
	c.Net.Hold = nil
	c.Net.Join(1, 2)
	c.Run(1500 * time.Millisecond) // beyond the restart hold
	if !leader.Valid() {
		return false
	}

	for range 20 { // a tick burst
		candidate.Tick()
	}
	for _, m := range *late {
		c.deliver(m, leaderlease.ProcessID{})
	}
	if candidate.Role() == raft.StateLeader && leader.Valid() {
		t.Errorf("node 2 leads term %d while node 1 holds the lease of term %d", candidate.Term(), leader.Term())
	}
	return true
}

// lateAnswers holds back what node 3 answers node 2 in an election. Its answer to the
// pre-vote comes in time as well, and makes node 2's disk slow.
func lateAnswers(c *Cluster, disk *time.Duration) *[]*raftpb.Message {
	late := new([]*raftpb.Message)
	c.Net.Hold = func(m *raftpb.Message) bool {
		if m.GetFrom() != 3 || m.GetTo() != 2 {
			return false
		}
		switch m.GetType() {
		case raftpb.MsgPreVoteResp:
			*late = append(*late, proto.CloneOf(m))
			*disk = time.Second
		case raftpb.MsgVoteResp:
			*late = append(*late, m)
			return true
		}
		return false
	}
	return late
}
