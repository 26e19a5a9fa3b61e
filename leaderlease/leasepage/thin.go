package leasepage

import (
	"slices"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

const (
	// thinInterval is the resolution of a live page for events that repeat: of one series it
	// keeps the first and the last event of each interval.
	thinInterval = 20 * time.Millisecond
	// maxEvents bounds the events that are kept of one process, of 80 bytes each.
	maxEvents = 1 << 15
)

// eventsSince returns the events from an instant on, at most the newest maxEvents. It keeps the
// last event: a feed continues after its number. It also keeps the view before them, if that
// shows the lease of a sole voter: such a lease is not renewed.
func eventsSince(events []leasetrace.Event, at leaderlease.Instant) []leasetrace.Event {
	n := max(0, len(events)-maxEvents)
	for n < len(events)-1 && events[n].At < at {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		if events[i].Kind != leasetrace.KindView {
			continue
		}
		if !endless(&events[i]) {
			break
		}
		return append([]leasetrace.Event{events[i]}, events[n:]...) // pictures share events
	}
	return events[n:]
}

// endless reports whether e shows the lease of a sole voter.
func endless(e *leasetrace.Event) bool {
	return e.Kind == leasetrace.KindView && e.Status == core.Valid && e.Instant == core.Forever
}

// series names events each of which repeats the one before.
type series struct {
	kind       leasetrace.Kind
	peer, term uint64
}

// thin removes, in place, events that no page shows. A leader that serves reads by quorum
// rounds has some thousand events in a tenth of a second.
func thin(events []leasetrace.Event) []leasetrace.Event {
	kept := events[:0]
	var at map[series][]int // the first and last index in kept of the present interval
	for i := range events {
		e := events[i]
		if e.Kind == leasetrace.KindProbe && i > 0 && i < len(events)-1 {
			continue
		}
		if !repeats(&e) {
			if e.Kind == leasetrace.KindView { // the lease ends here: keep the last renewals before
				at = nil
			}
			kept = append(kept, e)
			continue
		}
		if at == nil {
			at = make(map[series][]int)
		}
		key := series{e.Kind, e.Peer, e.Term}
		same := at[key]
		if len(same) > 0 && e.At.Sub(kept[same[0]].At) >= thinInterval {
			same = nil
		}
		if len(same) == 2 {
			kept[same[1]].Kind = leasetrace.KindNone
			same = same[:1]
		}
		at[key] = append(same, len(kept))
		kept = append(kept, e)
	}
	return slices.DeleteFunc(kept, func(e leasetrace.Event) bool { return e.Kind == leasetrace.KindNone })
}

// repeats reports whether an event may repeat the one before in its series.
func repeats(e *leasetrace.Event) bool {
	switch e.Kind {
	case leasetrace.KindView:
		return e.Status == core.Valid
	case leasetrace.KindPromise, leasetrace.KindCount:
		return e.OK
	case leasetrace.KindGrant:
		return true
	default:
		return false
	}
}
