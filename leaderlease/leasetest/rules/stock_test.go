package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// stockSchedules are the ways in which raft's own ReadOnlyLeaseBased serves stale reads. In each
// schedule nodes 2 and 3 elect a leader without node 1, which still believes that it leads. The
// same schedule runs with raft's option and with the library.
var stockSchedules = []struct {
	name string
	// run elects node 1, and then cuts it off or stops it without its notice.
	run func(s *story)
	// elect elects node 2.
	elect func(s *story) bool
}{
	{
		// Nothing but a partition: followers may elect after one election
		// timeout, CheckQuorum notices after up to two.
		name:  "partitioned leader",
		run:   func(s *story) { s.leadsUntilQuorumCheck(); s.isolate(1); s.Run(election + 50*ms) },
		elect: electNode2,
	},
	{
		name: "a restarted follower forgets its leader",
		run: func(s *story) {
			s.leadsUntilQuorumCheck()
			s.isolate(1)
			s.Node(3).Crash(0)
			s.Node(3).Restart()
		},
		elect: electNode2,
	},
	{
		// All the ticks of a pause come at once, right after a heartbeat that
		// says the leader is well.
		name: "tick burst",
		run: func(s *story) {
			s.leadsUntilQuorumCheck()
			s.Node(2).Pause()
			s.Node(3).Pause()
			s.Run(850 * ms)
			// Node 1 sees the answers of both, so that it stays.
			s.Node(2).Resume(false)
			s.Node(3).Resume(false)
			s.Run(ms)
			s.isolate(1)
			for _, id := range ids(2, 3) {
				n := s.Node(id)
				for range 20 {
					if n.Lease() == nil || n.Lease().Tick() {
						n.Raw().Tick()
					}
				}
				n.Kick()
			}
		},
		elect: electNode2,
	},
	{
		// The old leader does not hear that the transfer has succeeded.
		name: "transfer",
		run: func(s *story) {
			s.leadsUntilQuorumCheck()
			s.Node(1).Transfer(2)
			s.Net.Cut(2, 1)
			s.Net.Cut(3, 1)
		},
		elect: func(s *story) bool {
			return s.RunUntil(500*ms, func() bool { return s.Node(2).Role() == raft.StateLeader })
		},
	},
	{
		name: "late TimeoutNow after an aborted transfer",
		run: func(s *story) {
			s.lead(1)
			s.Run(1050*ms - s.Now())
			s.Net.Hold = to(2, raftpb.MsgTimeoutNow)
			s.Node(1).Transfer(2)
			late := s.heldOf(to(2, raftpb.MsgTimeoutNow))
			s.Run(2150*ms - s.Now())
			s.isolate(1)
			s.hand(late)
		},
		elect: electNode2,
	},
	{
		// CheckQuorum counts the leader's own slow ticks. By a clock at the right
		// rate it would have stepped down when node 2 is elected.
		name: "slow leader clock",
		run: func(s *story) {
			s.Node(1).Clock.SetRate(0.83)
			s.lead(1)
			s.Run(1950*ms - s.Now())
			s.isolate(1)
			s.Run(election + 60*ms)
		},
		elect: electNode2,
	},
	{
		// A client's read comes first when the process is scheduled again. The messages of
		// the others are still under way.
		name: "paused leader",
		run: func(s *story) {
			s.leadsUntilQuorumCheck()
			s.Node(1).Pause()
			s.isolate(1)
			s.Run(election + 60*ms)
		},
		elect: electNode2,
	},
}

// leadsUntilQuorumCheck lets node 1 lead until just after it has checked its quorum.
func (s *story) leadsUntilQuorumCheck() {
	s.t.Helper()
	s.lead(1)
	s.Run(2050*ms - s.Now())
}

// electNode2 lets node 2 campaign until it leads. No node is made to forget its leader, so that
// raft's own follower lease stays in force.
func electNode2(s *story) bool {
	return s.campaign(3*time.Second, 2)
}

// The same schedule gives a stale read with ReadOnlyLeaseBased, which is what
// the library is for, and none with the library.
func TestStockGoesStale(t *testing.T) {
	for _, tc := range stockSchedules {
		t.Run(tc.name, func(t *testing.T) {
			for _, arm := range []struct {
				name      string
				kind      leasetest.Kind
				wantStale bool
			}{
				{"ReadOnlyLeaseBased", leasetest.Stock, true},
				{"leaderlease", leasetest.Library, false},
			} {
				t.Run(arm.name, func(t *testing.T) {
					s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions {
						return leasetest.NodeOptions{Kind: arm.kind}
					}})
					tc.run(s)
					if !tc.elect(s) {
						t.Fatal("node 2 was not elected")
					}
					s.disjoint()
					written := s.write(2, 7)
					a := s.read(1, 7)
					s.Node(1).Resume(false)
					s.Run(20 * ms)
					if stale := a.served() && a.version < written; stale != arm.wantStale {
						t.Errorf("%v: node 1, %v of term %d: Read(7) = %+v after version %d was written, want stale: %v",
							s.Now(), s.Node(1).Role(), s.Node(1).Term(), *a, written, arm.wantStale)
					}
				})
			}
		})
	}
}

// The rules as stories, to be read: the comments in testdata/rules are the
// claims, the output is the proof.
func TestRuleScripts(t *testing.T) { leasetest.RunScripts(t, "testdata/rules") }
