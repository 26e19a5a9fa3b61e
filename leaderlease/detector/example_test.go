package detector_test

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// standing is what decides whether a member campaigns.
func standing(lease *leaderlease.Lease, role raft.StateType, voters []uint64) detector.State {
	return detector.State{
		Voters: voters, Leads: role == raft.StateLeader, Candidate: role == raft.StateCandidate,
		Bound: lease.CanCampaign() != nil,
	}
}

// A loop around a RawNode. The reader of a peer's connection puts the peer's ID into
// gone when it has ended, and no other connection from that peer is left.
func Example_rawNode() {
	var (
		node   *raft.RawNode
		lease  *leaderlease.Lease
		ticks  <-chan time.Time
		inbox  <-chan *raftpb.Message
		gone   <-chan uint64
		voters []uint64 // as applied, in order
	)
	d := detector.New(detector.Config{
		Self: 1, ElectionTicks: 20, Heartbeat: 50 * time.Millisecond, ElectionTimeout: time.Second,
		Observe: 10 * time.Second, // an unusual silence is a suspicion too
	}, time.Now())
	elect := func(do detector.Decision) {
		if do.Forget {
			_ = node.ForgetLeader()
		}
		if do.Campaign {
			_ = node.Campaign()
		}
	}
	poll := time.NewTicker(detector.Interval) // stop it while d.Suspects is false
	defer poll.Stop()
	var leader uint64
	loop := func() {
		select {
		case <-ticks:
			if lease.Tick() {
				node.Tick()
			}
			elect(d.Tick(time.Now(), standing(lease, node.BasicStatus().RaftState, voters)))
		case peer := <-gone:
			d.Gone(peer, time.Now())
		case now := <-poll.C:
			if d.Suspects(now) && len(inbox) == 0 { // what has arrived goes first
				elect(d.Poll(now, standing(lease, node.BasicStatus().RaftState, voters)))
			}
		case m := <-inbox:
			if lease.Incoming(m, leaderlease.ProcessID{}) {
				elect(d.Heard(m, node.BasicStatus().GetTerm(), time.Now())) // before raft steps it
				lease.RaiseCommit(node, m)
				_ = node.Step(m)
			}
		}
		// Then the Readys, as ever; and when one of them has changed it:
		if lead := node.BasicStatus().Lead; lead != leader {
			leader = lead
			d.LeaderIs(lead, time.Now())
		}
	}
	_ = loop // run it, as ever
	// Output:
}

// A loop around the raft.Node that leaderlease.Wrap has returned. Its Ready has the leader,
// and in which role and term this member is.
func Example_node() {
	var (
		node   raft.Node
		lease  *leaderlease.Lease
		ticks  <-chan time.Time
		gone   <-chan uint64
		inbox  <-chan *raftpb.Message
		voters []uint64
		role   raft.StateType
		term   uint64
	)
	ctx := context.Background()
	d := detector.New(detector.Config{Self: 1, ElectionTicks: 20, Heartbeat: 50 * time.Millisecond, ElectionTimeout: time.Second}, time.Now())
	elect := func(do detector.Decision) {
		if do.Forget {
			_ = node.ForgetLeader(ctx)
		}
		if do.Campaign {
			_ = node.Campaign(ctx)
		}
	}
	poll := time.NewTicker(detector.Interval)
	defer poll.Stop()
	loop := func() {
		select {
		case <-ticks:
			node.Tick()
			elect(d.Tick(time.Now(), standing(lease, role, voters)))
		case peer := <-gone:
			d.Gone(peer, time.Now())
		case now := <-poll.C:
			if d.Suspects(now) {
				elect(d.Poll(now, standing(lease, role, voters)))
			}
		case m := <-inbox: // a request for a pre-vote that the lease refuses is no suspicion
			if m.GetType() != raftpb.MsgPreVote || lease.CanCampaign() == nil {
				elect(d.Heard(m, term, time.Now()))
			}
			_ = node.Step(ctx, m)
		case rd := <-node.Ready():
			if !raft.IsEmptyHardState(rd.HardState) {
				term = rd.HardState.GetTerm()
			}
			if rd.SoftState != nil {
				role = rd.RaftState
				d.LeaderIs(rd.Lead, time.Now())
			}
			// Persist, send and apply, as ever.
			node.Advance()
		}
	}
	_ = loop // run it, as ever
	// Output:
}

// arrived is a message, with the process that the connection which it came by has named.
type arrived struct {
	m    *raftpb.Message
	from leaderlease.ProcessID
}

// death is the report of a parent that has reaped this process of the peer.
type death struct {
	peer    uint64
	process leaderlease.ProcessID
}

// Death notices and a RawNode. Ticks, suspicions and Readys are as in the example without them.
func Example_rawNodeProcessDied() {
	var (
		node       *raft.RawNode
		lease      *leaderlease.Lease
		d          *detector.Detector
		inbox      <-chan arrived
		died       <-chan death
		voters     []uint64
		afterDeath *raftpb.Message // to campaign by
	)
	elect := func(do detector.Decision) {
		if do.Forget {
			_ = node.ForgetLeader()
		}
		switch s := node.BasicStatus(); {
		case !do.Campaign:
		case do.Force && s.RaftState == raft.StateFollower && s.GetTerm() == afterDeath.GetTerm() && lease.Incoming(afterDeath, leaderlease.ProcessID{}):
			_ = node.Step(afterDeath)
		default:
			_ = node.Campaign()
		}
	}
	step := func(in arrived) {
		if lease.Incoming(in.m, in.from) {
			elect(d.Heard(in.m, node.BasicStatus().GetTerm(), time.Now()))
			lease.RaiseCommit(node, in.m)
			_ = node.Step(in.m)
		}
	}
	loop := func() {
		select {
		case in := <-inbox:
			step(in)
		case dead := <-died:
			for range len(inbox) { // first what the dead process sent, then the Readys (not shown)
				step(<-inbox)
			}
			now := time.Now()
			if m, void := lease.ProcessDied(dead.peer, dead.process); void {
				afterDeath = m
				d.ProcessDied(m, now)
			} else { // of a former process, say
				d.Gone(dead.peer, now)
			}
			elect(d.Poll(now, standing(lease, node.BasicStatus().RaftState, voters)))
		}
	}
	_ = loop // run it, as ever
	// Output:
}

// Death notices and a raft.Node that leaderlease.Wrap has returned. The context of Step says
// which process sent a message.
func Example_nodeProcessDied() {
	var (
		node       raft.Node
		lease      *leaderlease.Lease
		d          *detector.Detector
		inbox      <-chan arrived
		died       <-chan death
		voters     []uint64
		role       raft.StateType // as Readys have told, as the term
		term       uint64
		afterDeath *raftpb.Message
	)
	ctx := context.Background()
	elect := func(do detector.Decision) {
		if do.Forget {
			_ = node.ForgetLeader(ctx)
		}
		switch {
		case !do.Campaign:
		case do.Force && role == raft.StateFollower && term == afterDeath.GetTerm() && lease.CanCampaign() == nil:
			_ = node.Step(ctx, afterDeath)
		default:
			_ = node.Campaign(ctx)
		}
	}
	loop := func() {
		select {
		case in := <-inbox:
			if in.m.GetType() != raftpb.MsgPreVote || lease.CanCampaign() == nil {
				elect(d.Heard(in.m, term, time.Now()))
			}
			_ = node.Step(leaderlease.WithProcess(ctx, in.from), in.m)
		case dead := <-died: // once the inbox is empty
			now := time.Now()
			if m, void := lease.ProcessDied(dead.peer, dead.process); void {
				afterDeath = m
				d.ProcessDied(m, now)
			} else {
				d.Gone(dead.peer, now)
			}
			elect(d.Poll(now, standing(lease, role, voters)))
		}
	}
	_ = loop // run it, as ever
	// Output:
}
