package leasetest

import (
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// Gone tells the node that a peer has closed their last connection. The peer may or may not
// have died. Only a node with NodeOptions.Suspects acts upon it.
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

// refused tells the detector that raft has just refused its vote to a candidate that lacks
// entries.
func (n *Node) refused(m *raftpb.Message) {
	if n.detector == nil || m.GetType() != raftpb.MsgVote {
		return
	}
	if s := n.raw.BasicStatus(); s.GetTerm() == m.GetTerm() && s.GetVote() == raft.None && s.Lead == raft.None {
		n.detector.Refused(n.wall())
		n.pollSoon()
	}
}

// wall returns the true time as a wall clock.
func (n *Node) wall() time.Time { return time.Unix(0, 0).Add(n.cluster.Now()) }

// pollSoon polls every few milliseconds while the detector suspects the leader.
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

func (n *Node) standing() detector.State {
	voters := slices.Concat(n.conf.GetVoters(), n.conf.GetVotersOutgoing())
	slices.Sort(voters)
	return detector.State{
		Voters: slices.Compact(voters), Leads: n.role == raft.StateLeader, Candidate: n.role == raft.StateCandidate,
		Bound: n.lease.CanCampaign() != nil,
	}
}

func (n *Node) elect(do detector.Decision) {
	if do.Forget {
		_ = n.raw.ForgetLeader()
	}
	notice := n.notice
	switch {
	case do.Force && notice != nil && notice.GetTerm() == n.term && n.role == raft.StateFollower:
		n.notice = nil
		n.step(notice, leaderlease.ProcessID{})
	case do.Campaign:
		_ = n.raw.Campaign()
	}
}

// ProcessID returns the ID of the node's process, which its connections carry.
func (n *Node) ProcessID() leaderlease.ProcessID { return n.process(n.Process()) }

// process returns the ID of a process of the node; numbers begin with 1.
func (n *Node) process(number int) (id leaderlease.ProcessID) {
	binary.BigEndian.PutUint64(id[:8], n.ID)
	binary.BigEndian.PutUint64(id[8:], uint64(number))
	return id
}

// ProcessDied tells the node that a process of a peer will never execute another instruction,
// which must be true. With NodeOptions.Suspects the node campaigns in its turn, without at once.
func (n *Node) ProcessDied(peer uint64, dead leaderlease.ProcessID) {
	n.exec(func() {
		if n.lease == nil {
			return
		}
		m, void := n.lease.ProcessDied(peer, dead)
		switch {
		case n.detector == nil && void:
			n.step(m, leaderlease.ProcessID{})
		case n.detector == nil:
		case void:
			n.notice = m
			n.detector.ProcessDied(m, n.wall())
			n.elect(n.detector.Poll(n.wall(), n.standing()))
			n.pollSoon()
		default:
			n.detector.Gone(peer, n.wall())
			n.pollSoon()
		}
	})
}
