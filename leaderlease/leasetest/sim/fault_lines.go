package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// lines is the state of the network. It counts the cuts of each line, because faults overlap.
type lines struct {
	s        *sim
	cuts     map[[2]uint64]int
	troubles []*trouble
	watchers []*watch
	seed     uint64
}

// trouble delays, duplicates or drops the messages that match, while it is listed.
type trouble struct {
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
	for _, x := range l.troubles {
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
func (l *lines) add(x *trouble, d time.Duration) {
	l.troubles = append(l.troubles, x)
	l.s.c.After(d, func() {
		l.troubles = slices.DeleteFunc(l.troubles, func(o *trouble) bool { return o == x })
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
	l.troubles, l.watchers = nil, nil
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
