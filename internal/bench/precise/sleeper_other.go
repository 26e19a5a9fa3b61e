//go:build !linux

package precise

import "time"

// Sleeper is for one goroutine.
type Sleeper struct{}

// New returns a Sleeper, which Close ends.
func New() (*Sleeper, error) { return &Sleeper{}, nil }

// Sleep returns after d, by the runtime's timers.
func (*Sleeper) Sleep(d time.Duration) { time.Sleep(d) }

// Close does nothing.
func (*Sleeper) Close() error { return nil }
