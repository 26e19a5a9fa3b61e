package clock

import "golang.org/x/sys/unix"

// CLOCK_MONOTONIC_RAW is mach_continuous_time, which goes on during sleep; the
// runtime's mach_absolute_time stops.
const (
	boottimeID   = unix.CLOCK_MONOTONIC_RAW
	boottimeName = "monotonic_raw"
)

func platformClock() platform { return newBoottimeClock() }
