package leaderlease

import (
	"github.com/leaderlease/go/leaderlease/core"
)

// publishLocked makes the current lease visible to readers, and answers those
// that a renewal has covered.
func (l *Lease) publishLocked(now core.Instant) finished {
	mu := &l.mu
	pending, disabled := mu.conf.pending(), l.cfg.Disabled || mu.misuse != nil
	l.traceFlagsLocked(now, pending, disabled)
	mu.lease.SetRestartHold(mu.guard.Held(now))
	mu.lease.SetConfPending(pending)
	mu.lease.SetDisabled(disabled)
	// A failed reading leaves the refusal to FailClock; last is a lower bound.
	v := mu.lease.View(max(now, mu.last))
	if old := l.view.Load(); old != nil && old.same(&v, mu.marker) {
		l.noteLocked(now)
		return nil
	}
	next := &view{View: v, marker: mu.marker}
	l.showLocked(next, now)
	l.noteLocked(now)
	return l.joinedLocked(next)
}
