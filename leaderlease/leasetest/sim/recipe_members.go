package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// transferIsolate transfers leadership, and lets the old leader receive nothing as soon as it sends the
// MsgTimeoutNow, so that it does not learn that it was replaced.
func transferIsolate(f *fault) {
	from, to := f.transfer()
	if from == nil {
		return
	}
	f.lines.when(f.For, timeoutNow(from.ID, to.ID), func(*raftpb.Message) {
		f.note(from, "receives nothing")
		f.lines.cutAll(f.except(from.ID), []uint64{from.ID}, false, f.For)
	})
}

func timeoutNow(from, to uint64) func(*raftpb.Message) bool {
	return func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgTimeoutNow && m.GetFrom() == from && m.GetTo() == to
	}
}

// lateTimeoutNow delays the MsgTimeoutNow until the leader has given the transfer up and reads
// under its lease again, and lets the leader receive nothing from then on.
func lateTimeoutNow(f *fault) {
	from, to := f.transfer()
	if from == nil {
		return
	}
	late := time.Duration((1.05 + f.r.Float64()) * float64(f.w.electionTimeout()))
	f.lines.add(&impairment{match: timeoutNow(from.ID, to.ID), fixed: late, dup: 0.5, delay: f.w.D, r: f.r}, f.For)
	f.lines.when(f.For, timeoutNow(from.ID, to.ID), func(*raftpb.Message) {
		f.after(late-between(f.r, 0, 3*f.w.Latency), func() {
			f.note(from, "receives nothing")
			f.lines.cutAll(f.except(from.ID), []uint64{from.ID}, false, f.For)
			if f.r.IntN(2) == 0 {
				f.push(f.except(from.ID), f.For)
			}
		})
	})
}

// changeThen proposes a configuration, waits until l has applied it as far as
// done says, and goes on.
func (f *fault) changeThen(l *leasetest.Node, to configuration, done func(*raftpb.ConfState) bool, then func()) {
	f.change(to)
	end := f.c.Now() + 2*f.w.electionTimeout()
	var wait func()
	wait = func() {
		switch {
		case l.Up() && done(l.Conf()):
			then()
		case f.c.Now() < end:
			f.after(max(f.w.Latency/2, time.Millisecond), wait)
		}
	}
	wait()
}

func isJoint(cs *raftpb.ConfState) bool { return len(cs.GetVotersOutgoing()) > 0 }

// is reports whether cs has the voters of to, in the order of IDs.
func (to configuration) is(cs *raftpb.ConfState) bool {
	a, b := slices.Clone(cs.GetVoters()), slices.Clone(to.voters)
	slices.Sort(a)
	slices.Sort(b)
	return !isJoint(cs) && slices.Equal(a, b)
}

// jointSwap exchanges most voters, and in or just after the joint configuration
// cuts the leader off from one of the halves, which is then pushed.
func jointSwap(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		old := voters(l)
		fresh := f.except(old...)
		if f.r.IntN(2) == 0 || len(fresh) == 0 {
			fresh = f.except(l.ID)
		}
		f.r.Shuffle(len(fresh), func(i, j int) { fresh[i], fresh[j] = fresh[j], fresh[i] })
		to := configuration{voters: append([]uint64{l.ID}, fresh[:min(len(fresh), pick(f.r, 1, 2, 2, 4))]...)}
		inJoint := f.r.IntN(2) == 0
		done := func(cs *raftpb.ConfState) bool { return to.is(cs) || (inJoint && isJoint(cs)) }
		f.changeThen(l, to, done, func() {
			side := pick(f.r, old, to.voters, f.ids())
			side = slices.DeleteFunc(slices.Clone(side), func(id uint64) bool { return id == l.ID })
			if len(side) == 0 {
				return
			}
			f.after(between(f.r, 0, f.w.D/2), func() {
				f.note(l, "is cut off from a half")
				f.lines.cutAll([]uint64{l.ID}, side, true, f.For)
				f.push(side, f.For)
			})
		})
	})
}

// twoNodes shrinks the group to two and has the leader, which is slow to apply,
// remove itself: the other is alone a quorum before the leader knows.
func twoNodes(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		x := f.any(func(n *leasetest.Node) bool { return n != l && slices.Contains(voters(l), n.ID) })
		if x == nil {
			return
		}
		to := configuration{voters: []uint64{l.ID, x.ID}}
		f.changeThen(l, to, to.is, func() {
			f.note(l, "is slow to apply, and is removed")
			f.slowApply[l.ID] = f.c.Now() + f.For
			f.changeBy(configuration{voters: []uint64{x.ID}}, raftpb.ConfChangeTransitionAuto)
			if f.r.IntN(2) == 0 {
				// It is committed together with the change, and x hears of that last.
				f.writeAt(l, f.linear.key(0))
			}
			f.after(4*f.w.Latency+between(f.r, 0, 2*f.beat()), func() {
				if f.r.IntN(2) == 0 {
					f.isolate(l, f.For)
				}
				f.push([]uint64{x.ID}, f.For)
			})
		})
		for i := range 4 {
			f.after(f.For+time.Duration(1+i)*f.w.electionTimeout(), func() { f.change(f.home()) })
		}
	})
}

// growRecipe makes the leader a sole voter, with a lease that has no end, adds voters and cuts
// the leader off.
func growRecipe(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		sole := configuration{voters: []uint64{l.ID}}
		f.changeThen(l, sole, sole.is, func() {
			others := f.except(l.ID)
			f.r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
			to := configuration{voters: append(others[:min(len(others), 2)], l.ID)}
			f.changeThen(l, to, to.is, func() { f.after(between(f.r, 0, f.w.D/2), func() { f.isolatePush(l) }) })
		})
	})
}

// learnersRecipe leaves the leader with its learners, which cannot make promises.
func learnersRecipe(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		ids := f.except(l.ID)
		to := configuration{voters: append(slices.Clone(ids[:min(len(ids), 2)]), l.ID), learners: ids[min(len(ids), 2):]}
		f.changeThen(l, to, to.is, func() {
			f.after(between(f.r, f.w.D/4, f.w.D), func() {
				f.note(l, "is left with its learners")
				f.lines.cutAll([]uint64{l.ID}, ids[:min(len(ids), 2)], true, f.For)
				f.push(ids[:min(len(ids), 2)], f.For)
			})
		})
	})
}

// demoteRecipe makes the leader a learner, or nothing, and cuts it off in the
// middle.
func demoteRecipe(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		to, ok := f.without(l)
		if !ok {
			return
		}
		if f.r.IntN(2) == 0 {
			f.slowApply[l.ID] = f.c.Now() + f.For
		}
		gone := func(cs *raftpb.ConfState) bool { return isJoint(cs) || !slices.Contains(cs.GetVoters(), l.ID) }
		f.changeThen(l, to, gone, func() { f.isolatePush(l) })
		f.after(f.For+2*f.w.electionTimeout(), func() { f.change(f.home()) })
	})
}

// retireRecipe removes so many voters that the rest is no quorum of the earlier configuration.
// It switches off all others as soon as the leader has applied the change, and crashes the
// remaining voters. The others come back when there is a leader again.
func retireRecipe(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		others := f.except(l.ID)
		f.r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		stay := f.r.IntN(max(1, len(voters(l))/2))
		to := configuration{voters: append(slices.Clone(others[:stay]), l.ID)}
		f.changeThen(l, to, to.is, func() {
			f.note(l, "stays, others are switched off")
			for _, id := range others[stay:] {
				f.kill(f.c.Node(id), f.r.IntN(3))
			}
			for _, id := range to.voters {
				f.crashFor(f.c.Node(id), f.For)
			}
			f.comeBack(others)
		})
	})
}

// comeBack starts nodes again once there is a leader.
func (f *fault) comeBack(ids []uint64) {
	f.repeat(f.w.electionTimeout(), f.sched.Duration, func() bool {
		if f.c.Leader() == nil {
			return false
		}
		for _, id := range ids {
			f.restart(f.c.Node(id))
		}
		return true
	})
}
