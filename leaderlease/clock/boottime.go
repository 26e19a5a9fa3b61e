//go:build linux || darwin || windows

package clock

import (
	"sync"

	"github.com/leaderlease/go/leaderlease/core"
)

// boottimeClock reads a clock that counts suspended time by asking the system.
type boottimeClock struct {
	described
	origin int64 // immutable
}

// Boottime returns the operating system's clock that counts suspended time:
// CLOCK_BOOTTIME on Linux, by a system call, CLOCK_MONOTONIC_RAW (the continuous
// time) on macOS, QueryInterruptTimePrecise on Windows. Info has the cost of a
// reading. Where there is no such clock it returns Runtime, and Info says why.
func Boottime() Clock { return newBoottimeClock() }

func newBoottimeClock() platform {
	origin, err := origin()
	if err != nil {
		c := newRuntimeClock()
		c.warn(err.Error())
		return c
	}
	c := &boottimeClock{origin: origin}
	c.info = Info{Name: boottimeCall + boottimeName, CountsSuspend: true}
	c.info.Cost, c.info.Slow = measure(c)
	return c
}

// Now implements Clock.
func (c *boottimeClock) Now() core.Instant {
	ns, err := readBoottime()
	if err != nil {
		return 0
	}
	return core.Instant(ns + c.origin)
}

// origin is added to raw readings, so that the first one is firstReading. All
// clocks of a process that read the same raw clock share it.
var origin = sync.OnceValues(func() (int64, error) {
	ns, err := readBoottime()
	return int64(firstReading) - ns, err
})
