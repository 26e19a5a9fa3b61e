package leasetest

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// Gone tells the node that the other end has ended its last connection with a peer, which
// may or may not have died. With NodeOptions.Suspects the node acts upon it.
func (n *Node) Gone(peer uint64) {
	n.exec(func() {
		if n.detector == nil {
			return
		}
		n.detector.Gone(peer, n.wall())
		n.pollSoon()
	})
}

// Suspicions counts what the node's present process has suspected.
func (n *Node) Suspicions() detector.Stats {
	if n.detector == nil {
		return detector.Stats{}
	}
	return n.detector.Stats()
}

func (n *Node) newDetector() *detector.Detector {
	if !n.Options.Suspects || n.lease == nil {
		return nil
	}
	o := &n.cluster.opts
	return detector.New(detector.Config{
		Self: n.ID, ElectionTicks: o.ElectionTick,
		Heartbeat: time.Duration(o.HeartbeatTick) * o.TickInterval, ElectionTimeout: time.Duration(o.ElectionTick) * o.TickInterval,
		Observe: n.Options.Learn,
	}, n.wall())
}

// refused tells that raft has just refused its vote to a candidate that lacks entries.
func (n *Node) refused(m *raftpb.Message) {
	if n.detector == nil || m.GetType() != raftpb.MsgVote {
		return
	}
	if s := n.raw.BasicStatus(); s.GetTerm() == m.GetTerm() && s.GetVote() == raft.None && s.Lead == raft.None {
		n.detector.Refused(n.wall())
		n.pollSoon()
	}
}

// wall is what timers run on.
func (n *Node) wall() time.Time { return time.Unix(0, 0).Add(n.cluster.Now()) }

// pollSoon polls every few milliseconds for as long as the leader is suspected, or about to be.
func (n *Node) pollSoon() {
	if n.polling || !n.detector.Suspects(n.wall()) {
		return
	}
	n.polling = true
	n.later(detector.Interval, func() {
		n.exec(func() {
			n.polling = false
			n.elect(n.detector.Poll(n.wall(), n.standing()))
			n.pollSoon()
		})
	})
}

func (n *Node) standing() detector.Known {
	voters := slices.Concat(n.conf.GetVoters(), n.conf.GetVotersOutgoing())
	slices.Sort(voters)
	return detector.Known{
		Voters: slices.Compact(voters), Leads: n.role == raft.StateLeader, Candidate: n.role == raft.StateCandidate,
		Bound: n.lease.CanCampaign() != nil,
	}
}

func (n *Node) elect(do detector.Decision) {
	if do.Forget {
		_ = n.raw.ForgetLeader()
	}
	word := n.word
	switch {
	case do.Force && word != nil && word.GetTerm() == n.term && n.role == raft.StateFollower:
		n.word = nil
		n.step(word, leaderlease.ProcessID{})
	case do.Campaign:
		_ = n.raw.Campaign()
	}
}
