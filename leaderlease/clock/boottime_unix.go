//go:build linux || darwin

package clock

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const boottimeCall = "syscall:"

// readBoottime returns the raw reading in nanoseconds. In a time namespace its
// origin is anywhere.
func readBoottime() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(boottimeID, &ts); err != nil {
		return 0, fmt.Errorf("read clock %s (%d): %w", boottimeName, boottimeID, err)
	}
	return ts.Nano(), nil
}
