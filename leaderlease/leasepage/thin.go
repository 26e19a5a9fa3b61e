package leasepage

import (
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
)

const (
	// grain is how finely a live page tells what a busy member repeats: of what belongs
	// together the first and the last in a grain.
	grain = 20 * time.Millisecond
	// maxEvents bounds those of one process, of 80 bytes each.
	maxEvents = 1 << 15
)

// since returns the events from an instant on, at most the newest maxEvents. It keeps the
// last event, whose number a feed continues from. It also keeps the view before them, if
// that shows the lease of a sole voter: such a lease is not renewed.
func since(events []leaderlease.TraceEvent, at leaderlease.Instant) []leaderlease.TraceEvent {
	n := max(0, len(events)-maxEvents)
	for n < len(events)-1 && events[n].At < at {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		if events[i].Kind != leaderlease.TraceView {
			continue
		}
		if !endless(&events[i]) {
			break
		}
		return append([]leaderlease.TraceEvent{events[i]}, events[n:]...) // pictures share events
	}
	return events[n:]
}

// endless reports whether e shows the lease of a sole voter.
func endless(e *leaderlease.TraceEvent) bool {
	return e.Kind == leaderlease.TraceView && e.Status == core.Valid && e.Instant == core.Forever
}

// series are events of which each goes on with the one before.
type series struct {
	kind       leaderlease.TraceKind
	peer, term uint64
}

// thin leaves out, in place, what no page shows: a leader that serves reads by rounds has
// some thousand events in a tenth of a second.
func thin(events []leaderlease.TraceEvent) []leaderlease.TraceEvent {
	kept := events[:0]
	var at map[series][]int // where in kept those of the present grain are
	for i := range events {
		e := events[i]
		key := series{e.Kind, e.Peer, e.Term}
		if e.Kind == leaderlease.TraceProbe && i > 0 && i < len(events)-1 {
			continue
		}
		if !goesOn(&e) {
			if e.Kind == leaderlease.TraceView {
				at = nil
			}
			kept = append(kept, e)
			continue
		}
		if at == nil {
			at = make(map[series][]int)
		}
		same := at[key]
		if len(same) > 0 && e.At.Sub(kept[same[0]].At) >= grain {
			same = nil
		}
		if len(same) == 2 {
			kept[same[1]].Kind = leaderlease.TraceNone
			same = same[:1]
		}
		at[key] = append(same, len(kept))
		kept = append(kept, e)
	}
	whole := kept[:0]
	for i := range kept {
		if kept[i].Kind != leaderlease.TraceNone {
			whole = append(whole, kept[i])
		}
	}
	return whole
}

// goesOn reports whether an event may repeat the one before in its series.
func goesOn(e *leaderlease.TraceEvent) bool {
	switch e.Kind {
	case leaderlease.TraceView:
		return e.Status == core.Valid
	case leaderlease.TracePromise, leaderlease.TraceCount:
		return e.OK
	case leaderlease.TraceGrant:
		return true
	default:
		return false
	}
}
