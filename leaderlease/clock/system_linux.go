package clock

import "golang.org/x/sys/unix"

const (
	boottimeID   = unix.CLOCK_BOOTTIME
	boottimeName = "boottime"
)

// platformClock prefers the vDSO, then the system call, then the runtime; each
// says why the one before it is not used.
func platformClock() platform {
	fast, err := newVDSOClock()
	if err == nil {
		return fast
	}
	c := newBoottimeClock()
	c.warn("the vDSO is not used: " + err.Error())
	return c
}
