package leaderlease

import (
	"log/slog"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// saving is the state of the goroutine that saves the longest promise.
type saving struct {
	underWay bool
	failed   bool // the newest save has failed
}

// saveLocked begins to save the longest promise if storage must hold another one. Nothing
// waits for the disk: a probe that asks for more is refused meanwhile, and its leader sends
// another one.
func (l *Lease) saveLocked(now core.Instant) {
	s := &l.mu.saving
	if s.underWay || l.mu.closed {
		return
	}
	d, ok := l.mu.guard.Save(now)
	if !ok {
		return
	}
	s.underWay = true
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindSaving, At: now, Duration: d})
	if s, ok := l.cfg.Promises.(hook.Saver); ok {
		s.Run(func() { l.save(d) })
		return
	}
	l.saves.Go(func() { l.save(d) })
}

// save is called without a lock, since it waits for a disk.
func (l *Lease) save(d time.Duration) {
	err := l.cfg.Promises.SaveMaxPromise(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.mu.saving
	if err != nil && !s.failed {
		l.logLocked(slog.LevelError, "the longest promise cannot be saved", "duration", d, "error", err)
	}
	s.underWay, s.failed = false, err != nil
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindSaved, Duration: d, OK: err == nil})
	if err == nil {
		l.mu.guard.Saved(d)
	}
}
