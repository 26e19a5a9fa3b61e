package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

var networkFaults = []faultKind{
	{"loss", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&impairment{match: f.someLine(), loss: f.r.Float64() * 0.6, r: f.r}, f.For)
	}},
	{"duplicate", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&impairment{match: f.someLine(), dup: f.r.Float64(), delay: f.upTo(2), r: f.r}, f.For)
	}},
	{"reorder", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&impairment{match: f.someLine(), delay: f.upTo(1), r: f.r}, f.For)
	}},
	{"slow_link", 2, 0.5, 5, func(f *fault) {
		f.lines.add(&impairment{match: f.someLine(), fixed: f.upTo(0.7), r: f.r}, f.For)
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
	x := &impairment{fixed: f.upTo(2), delay: f.upTo(1), dup: pick(f.r, 0.0, 0.5), r: f.r}
	x.match = func(m *raftpb.Message) bool { return m.GetType() == t && (line == nil || line(m)) }
	f.trace.note(f.c.Now(), 0, "holds "+t.String(), "ms more", uint64(x.fixed.Milliseconds()), uint64(x.delay.Milliseconds()))
	f.lines.add(x, f.For)
}

// oneWay cuts the outgoing or the incoming lines of a node.
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

// lines is the state of the network. It counts the cuts of each line, because faults overlap.
type lines struct {
	s           *sim
	cuts        map[[2]uint64]int
	impairments []*impairment
	watchers    []*watch
	seed        uint64
}

// impairment delays, duplicates or drops the messages that match, while it is listed.
type impairment struct {
	match     func(*raftpb.Message) bool
	loss, dup float64
	delay     time.Duration // drawn from zero
	fixed     time.Duration
	echo      time.Duration // drawn from zero, of second copies only
	r         *rand.Rand
}

// watch waits for a message to be sent.
type watch struct {
	match func(*raftpb.Message) bool
	do    func(*raftpb.Message)
}

func (l *lines) init(s *sim) {
	l.s, l.cuts, l.seed = s, make(map[[2]uint64]int), s.sched.Seed
	s.c.Net.Plan = l.plan
}

// plan gives every message a latency of its own. It is a hash and not a draw
// from a stream, so that one message more or less leaves the others alone.
func (l *lines) plan(m *raftpb.Message) []time.Duration {
	t := trace{hash: l.seed}
	t.mix(uint64(l.s.c.Now()), m.GetFrom(), m.GetTo(), uint64(m.GetType()), m.GetIndex())
	lat := l.s.w.Latency
	delays := []time.Duration{lat/2 + time.Duration(t.hash%uint64(lat+1))}
	for _, x := range l.impairments {
		if x.match != nil && !x.match(m) {
			continue
		}
		if x.loss > 0 && x.r.Float64() < x.loss {
			return nil
		}
		if x.dup > 0 && x.r.Float64() < x.dup {
			delays = append(delays, delays[0]+between(x.r, 0, 4*lat+x.delay+x.echo))
		}
		for i := range delays {
			delays[i] += x.fixed + between(x.r, 0, x.delay)
		}
	}
	return delays
}

// add lets x befall messages for d.
func (l *lines) add(x *impairment, d time.Duration) {
	l.impairments = append(l.impairments, x)
	l.s.c.After(d, func() {
		l.impairments = slices.DeleteFunc(l.impairments, func(o *impairment) bool { return o == x })
	})
}

func (l *lines) cut(a, b uint64) {
	l.cuts[[2]uint64{a, b}]++
	l.s.c.Net.Cut(a, b)
}

func (l *lines) join(a, b uint64) {
	line := [2]uint64{a, b}
	if l.cuts[line]--; l.cuts[line] <= 0 {
		delete(l.cuts, line)
		l.s.c.Net.Mend(a, b)
	}
}

// cutAll cuts the lines from each of a to each of b, and both ways if both, and
// joins them after d.
func (l *lines) cutAll(a, b []uint64, both bool, d time.Duration) {
	l.s.c.After(d, l.cutOff(a, b, both))
}

// cutOff is cutAll until join is called.
func (l *lines) cutOff(a, b []uint64, both bool) (join func()) {
	var cut [][2]uint64
	for _, x := range a {
		for _, y := range b {
			if x == y {
				continue
			}
			cut = append(cut, [2]uint64{x, y})
			if both {
				cut = append(cut, [2]uint64{y, x})
			}
		}
	}
	for _, line := range cut {
		l.cut(line[0], line[1])
	}
	return func() {
		if l.s.healed {
			return
		}
		for _, line := range cut {
			l.join(line[0], line[1])
		}
	}
}

// heal restores the network.
func (l *lines) heal() {
	clear(l.cuts)
	l.impairments, l.watchers = nil, nil
	l.s.c.Net.Heal()
}

// when runs do once, just before the next message that matches is sent, if one
// is within d.
func (l *lines) when(d time.Duration, match func(*raftpb.Message) bool, do func(*raftpb.Message)) {
	w := &watch{match, do}
	l.watchers = append(l.watchers, w)
	l.s.c.After(d, func() { l.unwatch(w) })
}

func (l *lines) unwatch(w *watch) {
	l.watchers = slices.DeleteFunc(l.watchers, func(o *watch) bool { return o == w })
}

func (l *lines) sent(m *raftpb.Message) {
	for _, w := range slices.Clone(l.watchers) {
		if w.match(m) {
			l.unwatch(w)
			w.do(m)
		}
	}
}

// connFaults close connections, with or without the death of the process at the other end.
var connFaults = []faultKind{
	{"crash_closes_conns", 4, 0, 3, crashClosesConns},
	{"conns_close", 2, 0, 0.5, connsClose},
	{"conns_close_often", 1, 1, 4, connsCloseOften},
}

// crashClosesConns kills the leader, and nearly all others see its connections close within
// milliseconds.
func crashClosesConns(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.closeConns(l, 9)
	})
}

// closeConns closes l's connections with other nodes, each with a chance of tenths in ten.
func (f *fault) closeConns(l *leasetest.Node, tenths int) {
	for _, n := range f.c.Nodes() {
		if n != l && f.r.IntN(10) < tenths {
			f.after(between(f.r, 0, 5*time.Millisecond), func() {
				f.trace.note(f.c.Now(), n.ID, "sees connections end", "of", l.ID)
				n.Gone(l.ID)
			})
		}
	}
}

// connsClose closes all or some connections of a live leader. The leader may be cut off for a
// while as well.
func connsClose(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.note(l, "its connections end")
		if f.r.IntN(2) == 0 {
			f.isolate(l, f.For)
		}
		f.closeConns(l, pick(f.r, 3, 10))
	})
}

// connsCloseOften closes all connections of the leader, ten times a second.
func connsCloseOften(f *fault) {
	f.repeat(100*time.Millisecond, f.For, func() bool {
		f.withLeader(func(l *leasetest.Node) { f.closeConns(l, 10) })
		return false
	})
}
