package leasepage

import (
	"cmp"
	"slices"

	"github.com/leaderlease/go/leaderlease/core"
)

// driftPart is what part of a time two clocks drift apart by at most, which nobody
// compares meanwhile: twice what chrony slews a clock by, as MaxDriftPPM has it by default.
const driftPart = 6

// axis lays the clock of one process on that of the picture.
type axis struct{ knots []knot }

// knot says where one reading is on the axis, and by how much that may be wrong. Leads
// means that from there to the next knot the clock is the axis.
type knot struct {
	at       core.Instant
	on, fuzz int64
	leads    bool
}

// place returns where a reading is: between knots in proportion, outside as if the
// clock ran as the axis does.
func (a *axis) place(at core.Instant) (on, fuzz int64) {
	i, exact := slices.BinarySearchFunc(a.knots, at, func(k knot, at core.Instant) int { return cmp.Compare(k.at, at) })
	switch {
	case len(a.knots) == 0:
		return int64(at), 0
	case exact:
		return a.knots[i].on, a.knots[i].fuzz
	case i == 0:
		k := a.knots[0]
		return k.on - int64(k.at-at), k.fuzz + int64(k.at-at)/driftPart
	case a.knots[i-1].leads:
		k := a.knots[i-1]
		return k.on + int64(at-k.at), 0
	case i == len(a.knots):
		k := a.knots[i-1]
		return k.on + int64(at-k.at), k.fuzz + int64(at-k.at)/driftPart
	}
	b, n := a.knots[i-1], a.knots[i]
	share := float64(at-b.at) / float64(n.at-b.at)
	return b.on + int64(share*float64(n.on-b.on)),
		min(b.fuzz+int64(at-b.at)/driftPart, n.fuzz+int64(n.at-at)/driftPart)
}

// tie adds a knot behind all others. Time does not go back on the axis.
func (a *axis) tie(k knot) {
	if n := len(a.knots); n > 0 {
		if k.at <= a.knots[n-1].at {
			return
		}
		k.on = max(k.on, a.knots[n-1].on)
	}
	a.knots = append(a.knots, k)
}

// keep adds a knot where the reading is already.
func (a *axis) keep(at core.Instant) {
	on, fuzz := a.place(at)
	a.tie(knot{at: at, on: on, fuzz: fuzz})
}
