package sim

import "github.com/leaderlease/go/leaderlease/leasetest"

// dyingSavers transfers leadership to a node that asks for longer or shorter promises. It
// kills a voter that saves another longest promise because of that, before or after the save
// is durable, and also the next process, when that saves a shorter one. The next process knows
// only the saved promise.
func dyingSavers(f *fault) {
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
