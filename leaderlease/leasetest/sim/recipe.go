package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// recipes are sequences of faults for one rule each, which random faults alone would almost
// never line up.
var recipes = []faultKind{
	{"recipe_isolate_push", 6, 0.8, 3, func(f *fault) { f.withLeader(f.isolatePush) }},
	{"recipe_margin", 6, 1, 3, marginRecipe},
	{"recipe_restart_after_grant", 5, 0.8, 2, restartAfterGrant},
	{"recipe_lower_promise", 3, 0.8, 2, lowerPromise},
	{"recipe_dying_savers", 3, 2, 4, dyingSavers},
	{"recipe_bridge_restart", 5, 0.8, 2, bridgeRestart},
	{"recipe_paused_leader", 4, 1, 4, pausedLeader},
	{"recipe_late_grants", 4, 1, 3, lateGrants},
	{"recipe_late_probes", 3, 1, 3, lateProbes},
	{"recipe_late_rejection", 4, 1, 3, lateRejection},
	{"recipe_vote_race", 4, 1, 3, voteRace},
	{"recipe_transfer_isolate", 5, 0.8, 2, transferIsolate},
	{"recipe_late_timeout_now", 5, 1, 2, lateTimeoutNow},
	{"recipe_joint_swap", 4, 1, 3, jointSwap},
	{"recipe_two_nodes", 4, 1, 3, twoNodes},
	{"recipe_grow", 3, 1, 3, growRecipe},
	{"recipe_learners", 3, 1, 3, learnersRecipe},
	{"recipe_demote", 3, 1, 3, demoteRecipe},
	{"recipe_forgotten_reign", 5, 1, 3, forgottenTerm},
	{"recipe_retire", 3, 0, 1, retireRecipe},
	{"recipe_jumping_voters", 4, 0.8, 2, jumpingVoters},
}

// withLeader runs do if there is a leader that runs.
func (f *fault) withLeader(do func(l *leasetest.Node)) {
	if l := f.c.Leader(); l != nil && !l.Paused() {
		do(l)
	}
}

// isolatePush cuts the leader off and has the others elect another as early as
// their promises allow. The cut may be one-way, and takes effect at some point
// between two heartbeats.
func (f *fault) isolatePush(l *leasetest.Node) {
	others := f.except(l.ID)
	f.after(between(f.r, 0, f.beat()), func() {
		f.note(l, "is isolated, the others are pushed")
		f.lines.cutAll([]uint64{l.ID}, others, f.r.IntN(4) != 0, f.For)
		f.push(others, f.For)
	})
}

// beat is the time between two heartbeats.
func (s *sim) beat() time.Duration { return time.Duration(s.w.HeartbeatTick) * s.w.Tick }

// marginRecipe is isolatePush with the worst clocks that the bound allows.
func marginRecipe(f *fault) {
	slowLeader(f)
	f.after(between(f.r, f.w.D, 2*f.w.D), func() { f.withLeader(f.isolatePush) })
}

// grantOf returns a match for grants to l, from one node if from is not 0.
func grantsTo(l, from uint64) func(*raftpb.Message) bool {
	return func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgHeartbeatResp && m.GetTo() == l && (from == 0 || m.GetFrom() == from)
	}
}

// restartAfterGrant kills voters just after a grant of theirs has left, starts
// them again at once and pushes: their memory of the promise is gone.
func restartAfterGrant(f *fault) {
	f.withLeader(func(l *leasetest.Node) { f.restartGranters(l, func() {}) })
}

// lowerPromise is the same, and the new processes are configured with a shorter
// promise than the old ones have made.
func lowerPromise(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.restartGranters(l, func() {
			for _, n := range f.c.Nodes() {
				if n != l && f.r.IntN(2) == 0 {
					f.scale[n.ID] = 0.3 + f.r.Float64()/2
				}
			}
		})
	})
}

func (f *fault) restartGranters(l *leasetest.Node, before func()) {
	f.lines.when(3*f.beat(), grantsTo(l.ID, 0), func(m *raftpb.Message) {
		// The grant is under way; lines are cut on arrival.
		f.after(2*f.w.Latency, func() {
			before()
			f.crashOthers(l, m.GetFrom())
		})
	})
}

// crashOthers cuts the leader off, crashes one of the others, and most of the rest, and has
// those elect another leader once they are back.
func (f *fault) crashOthers(l *leasetest.Node, one uint64) {
	others := f.except(l.ID)
	f.lines.cutAll([]uint64{l.ID}, others, true, f.For)
	for _, id := range others {
		if id == one || f.r.IntN(3) != 0 {
			f.crashFor(f.c.Node(id), time.Duration(f.r.IntN(2))*time.Millisecond)
		}
	}
	f.after(2*time.Millisecond, func() { f.push(others, f.For) })
}

// bridgeRestart leaves the leader with one way to a quorum, over a bridge, and
// then restarts the bridge, which the other side is waiting for.
func bridgeRestart(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		b := f.any(func(n *leasetest.Node) bool { return n != l && slices.Contains(voters(l), n.ID) })
		if b == nil {
			return
		}
		f.note(b, "is a bridge to the leader")
		far := f.except(l.ID, b.ID)
		if len(far) > 2 {
			// The leader keeps just enough for a quorum.
			far = far[len(voters(l))/2-1:]
		}
		f.lines.cutAll([]uint64{l.ID}, far, true, f.For+2*f.w.D)
		f.after(between(f.r, f.w.D/2, 3*f.w.D/2), func() {
			f.crashFor(b, 0)
			f.lines.cutAll([]uint64{l.ID}, []uint64{b.ID}, true, f.For)
			f.push(append(far, b.ID), f.For)
		})
	})
}

// pausedLeader stops the leader for longer than its lease. Others lead when it
// wakes, and it finds ticks and messages in some order.
func pausedLeader(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.pauseFor(l, f.For)
		f.push(f.except(l.ID), f.For)
	})
}

// lateGrants lets only late grants through to a leader, while its followers elect another
// one.
func lateGrants(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.note(l, "gets late grants and nothing else")
		grant := grantsTo(l.ID, 0)
		f.lines.add(&trouble{match: grant, fixed: between(f.r, f.w.D/4, f.w.D), dup: 0.3, delay: f.w.D / 4, r: f.r}, f.For)
		f.after(between(f.r, f.w.D/2, f.w.D), func() {
			f.lines.add(&trouble{match: func(m *raftpb.Message) bool {
				return m.GetFrom() == l.ID || (m.GetTo() == l.ID && !grant(m))
			}, loss: 1, r: f.r}, f.For)
			f.push(f.except(l.ID), f.For)
		})
	})
}

// lateProbes makes heartbeats late, then cuts the leader off: what the voters
// have promised last, they have promised to an old probe.
func lateProbes(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.note(l, "has late heartbeats")
		f.lines.add(&trouble{match: func(m *raftpb.Message) bool {
			return m.GetType() == raftpb.MsgHeartbeat && m.GetFrom() == l.ID
		}, fixed: between(f.r, f.w.D/4, f.w.D), delay: f.w.D / 4, r: f.r}, f.For)
		f.after(between(f.r, f.w.D/2, f.w.D), func() { f.isolatePush(l) })
	})
}
