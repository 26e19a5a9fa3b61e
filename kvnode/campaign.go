package kvnode

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/store"
)

// campaigns decides when this member campaigns before raft's random timeout
// would have it do so. All of it is about time: raft's PreVote and the lease's
// promises decide who may win.
//
// Raft draws each timeout from one to two election timeouts, so that two
// members rarely campaign at once. Members that know each other can take turns
// instead, and then the first turn is due as soon as anybody would vote: just
// after one election timeout.
type campaigns struct {
	// open: raft takes part. A member that founds a cluster, or joins one, waits
	// until so many of the others have admitted it that any majority without it has
	// one among them: had it been there before and lost its directory, that one
	// would know (peers.Admit).
	open bool
	// fresh: there has been no leader since the log was bootstrapped, so nobody
	// has promised anything and nobody needs to wait.
	fresh    bool
	admitted map[uint64]bool
	// asking counts the claimants of a founder of one that are being asked, called is
	// when one last could not be, or the start: see waitAlone.
	asking   int
	called   time.Time
	reminded time.Time // when it was last said who is waited for
	// silent counts the ticks since the leader, now or last, was heard.
	silent int
	lost   uint64 // that leader, 0 if none was known since the start
}

func (c *campaigns) init(n *Node) {
	c.fresh = n.boot > 0
	c.open = !n.id.waits()
	c.admitted = make(map[uint64]bool)
	c.called = time.Now()
	c.reminded = c.called
	c.await(n)
	if !c.open && n.id.Alone {
		n.log.Info("founds a cluster of one, unless members of an older one call first", "in", n.cfg.patience)
	}
}

// admit notes that peer has accepted this member.
func (c *campaigns) admit(n *Node, peer uint64) {
	if c.open || !slices.ContainsFunc(n.id.Members, func(m store.Member) bool { return m.ID == peer }) {
		return
	}
	c.admitted[peer] = true
	c.await(n)
	if missing := c.missing(n); missing > 0 {
		n.log.Info("waits to be let in by others before it takes part", "missing", missing, "of", n.Awaited())
		return
	}
	if n.note(func(id *identity) { id.Admitted = true }) {
		c.open = true
		c.await(n)
		n.campaignIfDue()
	}
}

func (c *campaigns) leaderIs(leader uint64) {
	if leader != raft.None {
		c.lost, c.silent, c.fresh = leader, 0, false
	}
}

// heard notes signs of life of the leader.
func (c *campaigns) heard(n *Node, m *raftpb.Message) {
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgApp, raftpb.MsgSnap:
		if m.GetTerm() >= n.Term() {
			c.silent = 0
		}
	}
}

// turn is how many ticks lie between the turns of two members: a round trip and
// a write to disk fit in.
const turn = 3

// tries is at how many ticks of its turn a member campaigns. Ticks are not in
// step: at the first one the others may lack a tick until they would vote.
const tries = 2

// campaignIfDue is asked at each tick.
func (n *Node) campaignIfDue() {
	c := &n.loop.campaigns
	c.silent++
	c.remind(n)
	c.waitAlone(n)
	if !c.open || n.loop.role == raft.StateLeader || n.store.Applied() < n.boot || n.lease.MayCampaign() != nil {
		return
	}
	voters := n.voters()
	rank := slices.Index(voters, n.ID())
	switch {
	case rank < 0: // a learner, or removed
	case len(voters) == 1:
		n.campaign()
	case c.fresh:
		// The lowest ID that has been admitted begins; the others are there if
		// it does not.
		if c.silent > rank*turn {
			n.campaign()
			c.silent = 0
		}
	case c.silent > n.cfg.electionTicks():
		// Turns go round, since votes may be split with somebody whom raft's own
		// timeout has sent.
		others := len(voters)
		if slices.Contains(voters, c.lost) {
			others--
		}
		now := (c.silent - n.cfg.electionTicks() - 1) % (turn * others)
		if mine := turn * n.turnAfter(voters, c.lost); now >= mine && now < mine+tries {
			n.campaign()
		}
	}
}

func (n *Node) campaign() {
	// Raft refuses while a configuration change waits to be applied, and asks
	// again by itself after its own timeout.
	_ = n.loop.raw.Campaign()
}

// turnAfter returns this member's place among those that outlive leader.
func (n *Node) turnAfter(voters []uint64, leader uint64) int {
	place := 0
	for _, id := range voters {
		if id == n.ID() {
			break
		}
		if id != leader {
			place++
		}
	}
	return place
}

// voters returns the voters in order of their IDs, as applied.
func (n *Node) voters() (ids []uint64) {
	for id, m := range n.store.Members().ByID {
		if !m.Learner {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
