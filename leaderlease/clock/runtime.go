package clock

import (
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// runtimeClock reads the monotonic clock of the Go runtime.
type runtimeClock struct {
	described
	base time.Time // immutable; carries a monotonic reading
}

// Runtime returns a clock on the monotonic time of the Go runtime, counted from
// the call. It is cheap everywhere, but it is not known to count time in which
// the machine was suspended: on Linux and macOS it does not. Use it where that
// cannot happen, and in tests: made inside a testing/synctest bubble, it
// follows the bubble's time.
func Runtime() Clock { return newRuntimeClock() }

func newRuntimeClock() *runtimeClock {
	c := &runtimeClock{base: time.Now()}
	c.info = Info{Name: "runtime", Warning: runtimeWarning}
	c.info.Cost, c.info.Slow = measure(c)
	return c
}

// Now implements Clock.
func (c *runtimeClock) Now() core.Instant {
	return firstReading + core.Instant(time.Since(c.base))
}
