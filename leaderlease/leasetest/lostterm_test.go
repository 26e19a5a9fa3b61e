package leasetest

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
)

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
		return NodeOptions{Kind: Plain, HastyVotes: true, Async: true, DiskDelay: func() time.Duration { return disk }}
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
