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
	{"recipe_crash_while_saving", 3, 2, 4, crashWhileSaving},
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
	{"recipe_forgotten_term", 5, 1, 3, forgottenTerm},
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
		f.lines.add(&impairment{match: grant, fixed: between(f.r, f.w.D/4, f.w.D), dup: 0.3, delay: f.w.D / 4, r: f.r}, f.For)
		f.after(between(f.r, f.w.D/2, f.w.D), func() {
			f.lines.add(&impairment{match: func(m *raftpb.Message) bool {
				return m.GetFrom() == l.ID || (m.GetTo() == l.ID && !grant(m))
			}, loss: 1, r: f.r}, f.For)
			f.push(f.except(l.ID), f.For)
		})
	})
}

// lateProbes makes heartbeats late, and then cuts the leader off, so that the last promises of
// the voters answer old probes.
func lateProbes(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.note(l, "has late heartbeats")
		f.lines.add(&impairment{match: func(m *raftpb.Message) bool {
			return m.GetType() == raftpb.MsgHeartbeat && m.GetFrom() == l.ID
		}, fixed: between(f.r, f.w.D/4, f.w.D), delay: f.w.D / 4, r: f.r}, f.For)
		f.after(between(f.r, f.w.D/2, f.w.D), func() { f.isolatePush(l) })
	})
}

// lateRejection raises the term of a bound voter without a vote. A node with a higher term, from
// a failed transfer, rejects a pre-vote that was requested before the promise, and its answer
// is late.
func lateRejection(f *fault) {
	from, ahead := f.transfer()
	if from == nil {
		return
	}
	v := f.any(func(n *leasetest.Node) bool { return n != from && n != ahead && slices.Contains(voters(from), n.ID) })
	if v == nil {
		return
	}
	f.note(ahead, "campaigns unheard")
	d := 2*f.w.electionTimeout() + f.w.D + f.For
	unheard := &impairment{match: func(m *raftpb.Message) bool {
		return m.GetFrom() == ahead.ID && (m.GetTo() != v.ID || m.GetType() != raftpb.MsgPreVoteResp)
	}, loss: 1, r: f.r}
	f.lines.add(unheard, d)
	f.after(f.w.electionTimeout()+f.beat(), func() { f.rejectLate(from, ahead, v, unheard) })
}

func (f *fault) rejectLate(l, ahead, v *leasetest.Node, unheard *impairment) {
	// v hears nothing of l until its promise has ended, and campaigns.
	f.lines.cutAll([]uint64{l.ID}, []uint64{v.ID}, false, f.w.D+f.beat())
	late := between(f.r, f.beat(), f.w.D/2)
	f.lines.add(&impairment{match: func(m *raftpb.Message) bool {
		return m.GetFrom() == ahead.ID && m.GetTo() == v.ID
	}, fixed: late + f.beat(), r: f.r}, f.w.D+2*f.beat()+late)
	f.after(f.w.D+f.w.Latency, func() {
		f.note(v, "campaigns, and will be turned down late")
		v.Campaign()
		f.after(late+f.beat(), func() {
			unheard.loss = 0
			f.lines.cutAll([]uint64{l.ID}, f.except(l.ID), true, f.For)
			// The node that is ahead has missed entries: v must win.
			f.push([]uint64{v.ID, v.ID, ahead.ID}, f.For)
		})
	})
}

// voteRace makes a vote pass the filter of a node that is free, and a promise
// be made and granted before raft sees the vote.
func voteRace(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		v := f.any(func(n *leasetest.Node) bool { return n != l && n.Lease() != nil })
		c := f.any(func(n *leasetest.Node) bool { return n != l && n != v })
		if v == nil || c == nil {
			return
		}
		to := configuration{voters: []uint64{l.ID, v.ID, c.ID}}
		f.changeThen(l, to, to.is, func() { f.race(l, v, c) })
		f.after(f.For+4*f.w.electionTimeout(), func() { f.change(f.home()) })
	})
}

func (f *fault) race(l, v, c *leasetest.Node) {
	f.note(v, "hears nothing of its leader, then of a candidate, then of its leader")
	arrival := v.Options.FilterOnArrival
	v.Options.FilterOnArrival = true
	late := f.beat() + between(f.r, 0, f.beat()) + 2*(f.w.Latency+f.w.Step+f.w.Disk+f.w.Apply)
	f.slowVotes[v.ID] = late
	f.after(f.For+f.w.D, func() { v.Options.FilterOnArrival, f.slowVotes[v.ID] = arrival, 0 })

	toLeader := func(m *raftpb.Message) bool { return m.GetTo() == l.ID && m.GetFrom() != v.ID }
	lost := &impairment{loss: 1, r: f.r}
	// Entries that v gets and c does not would make v refuse the vote.
	noEntries := func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp || toLeader(m) }
	lost.match = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgHeartbeat || noEntries(m) }
	f.lines.add(lost, f.For+f.w.D)
	raced := false
	f.lines.when(f.For+f.w.D, func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgVote && m.GetTo() == v.ID && m.GetFrom() == c.ID
	}, func(*raftpb.Message) {
		raced, lost.match = true, noEntries
		f.repeat(max(f.w.Latency/2, time.Millisecond/2), late+4*f.w.Latency, func() bool {
			// Or it would ignore the vote, because it has just heard of l.
			if follows(v) {
				v.ForgetLeader()
			}
			return false
		})
	})
	f.after(f.w.D-f.beat(), func() {
		f.repeat(3*f.w.Latency+f.w.Disk+2*f.w.Step+time.Millisecond, f.For, func() bool {
			if raced || !follows(c) || !follows(v) {
				return raced
			}
			v.ForgetLeader()
			c.ForgetLeader()
			c.Campaign()
			return false
		})
	})
}

// repeat runs do every step until it is done, for at most d.
func (f *fault) repeat(step, d time.Duration, do func() (done bool)) {
	end := f.c.Now() + d
	var again func()
	again = func() {
		if !do() && f.c.Now() < end {
			f.after(step, again)
		}
	}
	again()
}

// forgottenTerm makes a voter lead while its disk stalls, kills it before its term is durable,
// and makes its next process campaign. Only one voter has entries of the first process; its
// other messages are late, a release among them. If the next process could lead the same term
// (V9), the other members would take those messages for its own.
func forgottenTerm(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		x := f.any(func(n *leasetest.Node) bool {
			return n != l && n.Options.Async && follows(n) && slices.Contains(voters(l), n.ID)
		})
		to := f.any(func(n *leasetest.Node) bool { return n != x && slices.Contains(voters(l), n.ID) })
		if x == nil || to == nil {
			return
		}
		f.note(x, "its disk stalls, and it is to lead")
		f.stalled[x.ID] = f.c.Now() + 4*f.w.D
		f.lines.add(&impairment{match: func(m *raftpb.Message) bool {
			return m.GetFrom() == x.ID && m.GetType() == raftpb.MsgApp && m.GetTo() != to.ID
		}, loss: 1, r: f.r}, 2*f.w.D)
		l.Transfer(x.ID)
		f.whenLeads(x, f.w.D, func() {
			f.after(between(f.r, 0, 4*f.beat()), func() { f.forgetTerm(x, to) })
		})
	})
}

// whenLeads runs then once x leads, or after d.
func (f *fault) whenLeads(x *leasetest.Node, d time.Duration, then func()) {
	end := f.c.Now() + d
	f.repeat(f.beat()/4, 2*d, func() bool {
		done := x.Role() == leaderRole || f.c.Now() >= end
		if done {
			then()
		}
		return done
	})
}

// forgetTerm makes x hand over with a late MsgTimeoutNow, kills it, and makes its next process
// campaign as soon as the promises allow.
func (f *fault) forgetTerm(x, to *leasetest.Node) {
	f.lines.add(&impairment{match: timeoutNow(x.ID, to.ID), fixed: between(f.r, f.w.D, 4*f.w.D), r: f.r}, 2*f.w.Latency)
	x.Transfer(to.ID)
	f.after(2*f.w.Latency, func() {
		f.stalled[x.ID] = 0
		f.crashLosing(x, 0, between(f.r, 0, f.beat()))
		term := f.leases.newest
		f.repeat(8*f.w.Latency+4*f.w.Disk+time.Millisecond, 3*f.w.D+f.For, func() bool {
			for _, n := range f.c.Nodes() {
				if follows(n) {
					n.ForgetLeader()
				}
			}
			if follows(x) {
				x.Campaign()
			}
			return f.leases.newest > term
		})
	})
}

// crashWhileSaving transfers leadership to a node that asks for longer or shorter promises. It
// kills a voter that saves another longest promise because of that, before or after the save
// is durable, and also the next process, when that saves a shorter one. The next process knows
// only the saved promise.
func crashWhileSaving(f *fault) {
	f.transfer()
	var leader *leasetest.Node
	again := func(id uint64) {
		f.onSave = nil
		f.after(f.w.Disk+2*f.w.Latency, func() {
			for _, other := range f.except(leader.ID) {
				if other == id || f.r.IntN(3) != 0 {
					f.crashFor(f.c.Node(other), 0)
				}
			}
		})
	}
	f.onSave = func(id uint64) {
		if f.r.IntN(3) == 0 {
			return // the next one
		}
		f.onSave = nil
		late := 2 * f.w.Latency
		f.after(between(f.r, late, late+pick(f.r, f.w.Disk, f.beat())), func() {
			f.withLeader(func(l *leasetest.Node) {
				leader = l
				f.crashOthers(l, id)
				f.onSave = again
			})
		})
	}
	f.after(f.For, func() { f.onSave = nil })
}
