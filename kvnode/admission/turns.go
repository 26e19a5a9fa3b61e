package admission

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// turns decide when a member campaigns before raft's random timeout would have it do
// so. All of it is about time: raft's PreVote and the lease's promises decide who may
// win.
//
// Raft draws each timeout from one to two election timeouts, so that two members rarely
// campaign at once. Members that know each other can take turns instead, and then the
// first turn is due as soon as anybody would vote: just after one election timeout.
type turns struct {
	// fresh: there has been no leader since the log was bootstrapped, so nobody has
	// promised anything and nobody needs to wait.
	fresh bool
	// silent counts the ticks since the leader, now or last, was heard.
	silent int
	lost   uint64 // that leader, 0 if none was known since the start
}

// Known is what is known at a tick of a member that takes part.
type Known struct {
	// Voters are the voters in order of their IDs, as applied.
	Voters []uint64
	// Leads: the member leads. Behind: it has not applied all that bootstrapping made.
	// Bound: it has promised not to campaign, or may have before it restarted.
	Leads, Behind, Bound bool
}

const (
	// turn is how many ticks lie between the turns of two members: a round trip and a
	// write to disk fit in.
	turn = 3
	// tries is at how many ticks of its turn a member campaigns. Ticks are not in step:
	// at the first one the others may lack a tick until they would vote.
	tries = 2
)

// LeaderIs tells who leads, raft.None if nobody is known to.
func (s *State) LeaderIs(leader uint64) {
	if leader != raft.None {
		s.turns = turns{lost: leader}
	}
}

// Heard tells of a message, which is a sign of life of the leader of that term, or not.
func (s *State) Heard(m *raftpb.Message, term uint64) {
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgApp, raftpb.MsgSnap:
		if m.GetTerm() >= term {
			s.turns.silent = 0
		}
	}
}

// Silence is how many ticks ago the leader, now or last, was heard.
func (s *State) Silence() int { return s.turns.silent }

// tick reports whether it is the member's turn to campaign.
func (t *turns) tick(cfg *Config, k Known) bool {
	t.silent++
	rank := slices.Index(k.Voters, cfg.Self)
	switch {
	case k.Leads, k.Behind, k.Bound:
		return false
	case rank < 0: // a learner, or removed
		return false
	case len(k.Voters) == 1:
		return true
	case t.fresh:
		// The lowest ID begins; the others are there if it does not.
		due := t.silent > rank*turn
		if due {
			t.silent = 0
		}
		return due
	case t.silent <= cfg.ElectionTicks:
		return false
	}
	// Turns go round, since votes may be split with somebody whom raft's own timeout has
	// sent.
	outlive := slices.DeleteFunc(slices.Clone(k.Voters), func(id uint64) bool { return id == t.lost })
	place, _ := slices.BinarySearch(outlive, cfg.Self)
	now := (t.silent - cfg.ElectionTicks - 1) % (turn * len(outlive))
	return now >= turn*place && now < turn*place+tries
}
