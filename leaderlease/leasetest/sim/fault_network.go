package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

var networkFaults = []faultKind{
	{"loss", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&trouble{match: f.someLine(), loss: f.r.Float64() * 0.6, r: f.r}, f.For)
	}},
	{"duplicate", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&trouble{match: f.someLine(), dup: f.r.Float64(), delay: f.upTo(2), r: f.r}, f.For)
	}},
	{"reorder", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&trouble{match: f.someLine(), delay: f.upTo(1), r: f.r}, f.For)
	}},
	{"slow_link", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&trouble{match: f.someLine(), fixed: f.upTo(0.7), r: f.r}, f.For)
	}},
	{"hold_type", 5, 0.2, 3, holdType},
	{"one_way", 3, 0.5, 4, oneWay},
	{"isolate", 4, 0.5, 4, func(f *fault) {
		if n := f.leaderOr(); n != nil {
			f.isolate(n, f.For)
		}
	}},
	{"halves", 3, 0.5, 4, halves},
	{"bridge", 3, 0.5, 4, func(f *fault) { f.bridge(f.any(nil), f.For) }},
}

// upTo draws a time of up to x election timeouts.
func (f *fault) upTo(x float64) time.Duration {
	return between(f.r, 0, time.Duration(x*float64(f.w.electionTimeout())))
}

// someLine matches all messages, or those from, to or between some nodes.
func (f *fault) someLine() func(*raftpb.Message) bool {
	from, to := f.any(nil).ID, f.any(nil).ID
	switch f.r.IntN(4) {
	case 0:
		return nil
	case 1:
		return func(m *raftpb.Message) bool { return m.GetFrom() == from }
	case 2:
		return func(m *raftpb.Message) bool { return m.GetTo() == to }
	default:
		return func(m *raftpb.Message) bool { return m.GetFrom() == from && m.GetTo() == to }
	}
}

// holdType makes messages of one type late, by seconds, while all others pass.
func holdType(f *fault) {
	t := pick(f.r,
		raftpb.MsgTimeoutNow, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgHeartbeatResp,
		raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgSnap, raftpb.MsgProp, raftpb.MsgReadIndex, raftpb.MsgReadIndexResp)
	line := f.someLine()
	x := &trouble{fixed: f.upTo(2), delay: f.upTo(1), dup: pick(f.r, 0.0, 0.5), r: f.r}
	x.match = func(m *raftpb.Message) bool { return m.GetType() == t && (line == nil || line(m)) }
	f.trace.note(f.c.Now(), 0, "holds "+t.String(), "ms more", uint64(x.fixed.Milliseconds()), uint64(x.delay.Milliseconds()))
	f.lines.add(x, f.For)
}

// oneWay cuts what a node sends, or what it receives.
func oneWay(f *fault) {
	n := f.leaderOr()
	if n == nil {
		return
	}
	others := f.except(n.ID)
	if f.r.IntN(2) == 0 {
		f.note(n, "cannot send")
		f.lines.cutAll([]uint64{n.ID}, others, false, f.For)
		return
	}
	f.note(n, "cannot receive")
	f.lines.cutAll(others, []uint64{n.ID}, false, f.For)
}

// halves splits the nodes into two groups.
func halves(f *fault) {
	var a, b []uint64
	for _, id := range f.ids() {
		if f.r.IntN(2) == 0 {
			a = append(a, id)
			continue
		}
		b = append(b, id)
	}
	f.lines.cutAll(a, b, true, f.For)
}

// bridge splits the nodes into two groups that only n can reach.
func (f *fault) bridge(n *leasetest.Node, d time.Duration) {
	var a, b []uint64
	for i, id := range f.except(n.ID) {
		if (f.r.IntN(4) == 0) == (i%2 == 0) {
			a = append(a, id)
			continue
		}
		b = append(b, id)
	}
	f.note(n, "is a bridge")
	f.lines.cutAll(a, b, true, d)
}
