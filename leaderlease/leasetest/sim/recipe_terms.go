package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

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
	unheard := &trouble{match: func(m *raftpb.Message) bool {
		return m.GetFrom() == ahead.ID && (m.GetTo() != v.ID || m.GetType() != raftpb.MsgPreVoteResp)
	}, loss: 1, r: f.r}
	f.lines.add(unheard, d)
	f.after(f.w.electionTimeout()+f.beat(), func() { f.rejectLate(from, ahead, v, unheard) })
}

func (f *fault) rejectLate(l, ahead, v *leasetest.Node, unheard *trouble) {
	// v hears nothing of l until its promise has ended, and campaigns.
	f.lines.cutAll([]uint64{l.ID}, []uint64{v.ID}, false, f.w.D+f.beat())
	late := between(f.r, f.beat(), f.w.D/2)
	f.lines.add(&trouble{match: func(m *raftpb.Message) bool {
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
	deaf := &trouble{loss: 1, r: f.r}
	// Entries that v gets and c does not would make v refuse the vote.
	noEntries := func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp || toLeader(m) }
	deaf.match = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgHeartbeat || noEntries(m) }
	f.lines.add(deaf, f.For+f.w.D)
	raced := false
	f.lines.when(f.For+f.w.D, func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgVote && m.GetTo() == v.ID && m.GetFrom() == c.ID
	}, func(*raftpb.Message) {
		raced, deaf.match = true, noEntries
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
