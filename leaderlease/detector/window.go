package detector

import (
	"slices"
	"time"
)

const (
	// slots is for how many minutes a window remembers. Fewer: a leader that stalls every few
	// minutes, as for a checkpoint, is suspected each time. More: after one stall fail-over is
	// slow for longer.
	slots = 10
	slot  = time.Minute
)

// window knows the longest time that was noted in the last ten minutes, or a little less. It
// counts nothing: many short ones do not hide one that is long, as they do from a quantile.
type window struct {
	longest [slots]time.Duration // of each minute
	at      int                  // the present minute's
	since   time.Time            // when that began
}

func (w *window) note(took time.Duration, now time.Time) {
	w.turn(now)
	w.longest[w.at] = max(w.longest[w.at], took)
}

func (w *window) max(now time.Time) time.Duration {
	w.turn(now)
	return slices.Max(w.longest[:])
}

// turn forgets the minutes that are too long ago.
func (w *window) turn(now time.Time) {
	if now.Sub(w.since) >= slots*slot {
		*w = window{since: now}
	}
	for ; now.Sub(w.since) >= slot; w.since = w.since.Add(slot) {
		w.at = (w.at + 1) % slots
		w.longest[w.at] = 0
	}
}
