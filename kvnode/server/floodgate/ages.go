package floodgate

import "time"

// young is how old a stream must be for its reset to be no sign of a flood. Less:
// a flood that waits for so long passes. More: clients with deadlines shorter than
// this are taken for one when nobody answers them.
const young = 500 * time.Millisecond

// ages tells old streams from young ones without remembering each: their numbers
// grow.
type ages struct {
	newest uint32    // stream that was opened
	old    uint32    // newest stream that is certainly old
	mark   uint32    // newest stream when it was marked
	marked time.Time // when that was
	seen   time.Time // the newest call of pass
}

// pass is called before streams are opened at now.
func (a *ages) pass(now time.Time) {
	switch {
	case now.Sub(a.seen) >= young:
		a.old, a.mark, a.marked = a.newest, a.newest, now
	case now.Sub(a.marked) >= young:
		a.old, a.mark, a.marked = a.mark, a.newest, now
	}
	a.seen = now
}
