package sim

import (
	"time"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// hintFaults close connections, with or without the death of the process at the other end.
var hintFaults = []faultKind{
	{"hint", 4, 0, 3, deathHint},
	{"hint_false", 2, 0, 0.5, falseHint},
	{"hint_storm", 1, 1, 4, hintStorm},
}

// deathHint kills the leader, and nearly all others see its connections close within
// milliseconds.
func deathHint(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.hint(l, 9)
	})
}

// hint closes l's connections with other nodes, each with a chance of tenths in ten.
func (f *fault) hint(l *leasetest.Node, tenths int) {
	for _, n := range f.c.Nodes() {
		if n != l && f.r.IntN(10) < tenths {
			f.after(between(f.r, 0, 5*time.Millisecond), func() {
				f.trace.note(f.c.Now(), n.ID, "sees connections end", "of", l.ID)
				n.Gone(l.ID)
			})
		}
	}
}

// falseHint closes all or some connections of a live leader. The leader may be cut off for a
// while as well.
func falseHint(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.note(l, "its connections end")
		if f.r.IntN(2) == 0 {
			f.isolate(l, f.For)
		}
		f.hint(l, pick(f.r, 3, 10))
	})
}

// hintStorm closes all connections of the leader, ten times a second.
func hintStorm(f *fault) {
	f.repeat(100*time.Millisecond, f.For, func() bool {
		f.withLeader(func(l *leasetest.Node) { f.hint(l, 10) })
		return false
	})
}
