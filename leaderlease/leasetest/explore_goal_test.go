package leasetest

import (
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// goal is something that must have been seen, or a search proves little.
type goal int

const (
	goalLease goal = iota
	goalExpired
	goalSecond
	goalAtOnce
	goalBound
	goalHeld
	goalReleased
	goalRecovered
	goalConf
	goalHealed
	goalJoined
	goalRound
	goalForwarded
	goalShared
	goalAhead
	goalResigned
	goalForgone
	goalVoided
	goalFormer
	numGoals
)

var goalNames = [numGoals]string{
	"a lease is held", "a lease has run out", "a second leader has a lease", "somebody leads at once", "a promise keeps a vote away",
	"a restart hold keeps a vote away", "a bound voter that is released votes", "a lease is held again after a fault of the clock",
	"a lease is held under another configuration", "a lease is held again after a change that was not told of",
	"a read is answered by a renewal", "a read is answered by a round", "a follower reads", "two reads share a round",
	"a follower reads while the leader applies", "a leader that resigns is replaced at once", "who has resigned leads on",
	"a leader that has died is replaced at once", "an obituary of a former process voids nothing",
}

func (j *judge) reach(g goal, seen bool) {
	if seen {
		j.goals |= 1 << g
	}
}

// survey notes the goals that a state reaches.
func (p *play) survey() {
	for _, n := range p.c.nodes {
		if p.resigned[process{n.ID, n.run}] {
			p.reach(goalForgone, n.up && n.role == raft.StateLeader && p.c.Now()-p.word > 300*time.Millisecond)
		}
		if n.up && n.lease != nil {
			p.surveyLease(n)
		}
	}
}

func (p *play) surveyLease(n *Node) {
	i, s := n.lease.Info(), n.lease.Stats()
	other := len(n.conf.GetVoters()) != len(p.c.opts.Voters)
	p.reach(goalLease, i.Valid())
	p.reach(goalExpired, i.Status == leaderlease.StatusExpired)
	p.reach(goalSecond, i.Valid() && len(p.led) > 1)
	p.reach(goalRecovered, i.Valid() && s.ClockFaults > 0)
	p.reach(goalConf, i.Valid() && other)
	p.reach(goalHealed, i.Valid() && other && p.missed == n.ID)
	votes := s.Withheld.VoteIn + s.Withheld.PreVoteIn
	p.reach(goalBound, votes > 0 && i.Promise.Hold == 0)
	p.reach(goalHeld, votes > 0 && i.Promise.Hold > 0)
	p.reach(goalFormer, s.Deaths > s.VoidedPromises && i.Promise.Remaining > 0)
	p.reach(goalShared, i.Waiting > 1 && s.Rounds == 1)
}

// heard notes the goals that a script prints.
func (p *play) heard(out string) {
	p.reach(goalJoined, strings.Contains(out, "by joined"))
	p.reach(goalRound, strings.Contains(out, "by read_index"))
	forwarded := strings.Contains(out, "by forwarded")
	p.reach(goalForwarded, forwarded)
	leader := p.c.Leader()
	p.reach(goalAhead, forwarded && leader != nil && leader.Applied() < leader.raw.BasicStatus().GetCommit())
}

// watchVotes notes votes of voters that were bound until they were released.
func (p *play) watchVotes() {
	bound := make(map[*raftpb.Message]bool)
	check := p.c.OnDeliver
	p.c.OnDeliver = func(n *Node, m *raftpb.Message) {
		check(n, m)
		if m.GetType() == raftpb.MsgVote {
			bound[m] = n.Bound()
		}
	}
	p.c.OnAdmit = func(_ *Node, m *raftpb.Message) { p.reach(goalReleased, bound[m]) }
	won := p.c.OnLeader
	p.c.OnLeader = func(n *Node, term uint64) {
		p.reach(goalAtOnce, p.c.Now() < 50*time.Millisecond)
		p.reach(goalVoided, n.lease.Stats().VoidedPromises > 0 && p.c.Now() < 200*time.Millisecond)
		p.reach(goalResigned, len(p.resigned) > 0 && p.c.Now()-p.word < 50*time.Millisecond)
		won(n, term)
	}
}
