package sim

import "github.com/leaderlease/go/leaderlease/leasetest"

// dyingSavers hands leadership on, to somebody who asks for longer or shorter promises,
// and kills one that saves another longest promise because of that, before it is on the disk
// or after. What they have saved is all that the next process knows.
func dyingSavers(f *fault) {
	f.transfer()
	f.onSave = func(id uint64) {
		if f.r.IntN(3) == 0 {
			return // the next one
		}
		f.onSave = nil
		late := 2 * f.w.Latency
		f.after(between(f.r, late, late+pick(f.r, f.w.Disk, f.beat())), func() {
			f.withLeader(func(l *leasetest.Node) { f.crashOthers(l, id) })
		})
	}
	f.after(f.For, func() { f.onSave = nil })
}
