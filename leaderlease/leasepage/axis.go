package leasepage

import (
	"cmp"
	"slices"

	"github.com/leaderlease/go/leaderlease/core"
)

// driftPart bounds how far two clocks drift apart that are not compared for a while: by one
// part in driftPart of that time. It is twice what chrony slews a clock by at most, by default
// (MaxDriftPPM).
const driftPart = 6

// axis places readings of a process's clock on the axis of the picture.
type axis struct{ anchors []anchor }

// anchor says that the reading at is the time on of the axis, with an error of at most fuzz.
// If leads is set, the clock is the axis from there to the next anchor.
type anchor struct {
	at       core.Instant
	on, fuzz int64
	leads    bool
}

// place returns where a reading is on the axis: in proportion between two anchors, and beyond
// them as if the clock ran at the rate of the axis.
func (a *axis) place(at core.Instant) (on, fuzz int64) {
	i, exact := slices.BinarySearchFunc(a.anchors, at, func(k anchor, at core.Instant) int { return cmp.Compare(k.at, at) })
	switch {
	case len(a.anchors) == 0:
		return int64(at), 0
	case exact:
		return a.anchors[i].on, a.anchors[i].fuzz
	case i == 0:
		k := a.anchors[0]
		return k.on - int64(k.at-at), k.fuzz + int64(k.at-at)/driftPart
	case a.anchors[i-1].leads:
		k := a.anchors[i-1]
		return k.on + int64(at-k.at), 0
	case i == len(a.anchors):
		k := a.anchors[i-1]
		return k.on + int64(at-k.at), k.fuzz + int64(at-k.at)/driftPart
	}
	b, n := a.anchors[i-1], a.anchors[i]
	share := float64(at-b.at) / float64(n.at-b.at)
	return b.on + int64(share*float64(n.on-b.on)),
		min(b.fuzz+int64(at-b.at)/driftPart, n.fuzz+int64(n.at-at)/driftPart)
}

// add adds an anchor behind all others; an earlier one is ignored. The axis does not run
// backwards.
func (a *axis) add(k anchor) {
	if n := len(a.anchors); n > 0 {
		if k.at <= a.anchors[n-1].at {
			return
		}
		k.on = max(k.on, a.anchors[n-1].on)
	}
	a.anchors = append(a.anchors, k)
}
