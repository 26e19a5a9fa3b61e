package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

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
		f.lines.add(&trouble{match: func(m *raftpb.Message) bool {
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
	f.lines.add(&trouble{match: timeoutNow(x.ID, to.ID), fixed: between(f.r, f.w.D, 4*f.w.D), r: f.r}, 2*f.w.Latency)
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
