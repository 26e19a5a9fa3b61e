package detector_test

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// arrived is a message, with the process that the connection which it came by has named.
type arrived struct {
	m    *raftpb.Message
	from leaderlease.ProcessID
}

// death is the word of a parent that has reaped that process of the peer's.
type death struct {
	peer    uint64
	process leaderlease.ProcessID
}

// Death notices and a RawNode. Ticks, hints and Readys are as in the example without them.
func Example_rawNodeObituary() {
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
			_ = node.Step(in.m)
		}
	}
	loop := func() {
		select {
		case in := <-inbox:
			step(in)
		case dead := <-died:
			for range len(inbox) { // what it had sent goes first, and then the Readys: it may just have been elected
				step(<-inbox)
			}
			now := time.Now()
			if m, void := lease.ProcessDied(dead.peer, dead.process); void {
				afterDeath = m
				d.Obituary(m, now)
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
func Example_nodeObituary() {
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
				d.Obituary(m, now)
			} else {
				d.Gone(dead.peer, now)
			}
			elect(d.Poll(now, standing(lease, role, voters)))
		}
	}
	_ = loop // run it, as ever
	// Output:
}
