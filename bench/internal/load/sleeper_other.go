//go:build !linux

package load

import "time"

// Sleeper is for one goroutine.
type Sleeper struct{}

// NewSleeper returns a Sleeper, which Close ends.
func NewSleeper() (*Sleeper, error) { return &Sleeper{}, nil }

// Sleep returns after d, by the runtime's timers.
func (*Sleeper) Sleep(d time.Duration) { time.Sleep(d) }

// Close does nothing.
func (*Sleeper) Close() error { return nil }
