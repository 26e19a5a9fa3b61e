package clock

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

const (
	boottimeCall = "kernelbase:"
	boottimeName = "interrupt_time_precise"
)

// interruptTime is QueryInterruptTimePrecise, from Windows 10 and Server 2016 on.
// It returns units of 100 ns since the system was started, with sleep and
// hibernation, as of the call and not of the last system tick.
var interruptTime = windows.NewLazySystemDLL("kernelbase.dll").NewProc("QueryInterruptTimePrecise")

// maxInterruptTime is the last count that fits in nanoseconds, after 292 years.
const maxInterruptTime = (1<<63 - 1) / 100

func platformClock() platform { return newBoottimeClock() }

// readBoottime returns the interrupt time in nanoseconds.
func readBoottime() (int64, error) {
	if err := interruptTime.Find(); err != nil {
		return 0, fmt.Errorf("read the interrupt time: %w", err)
	}
	var count uint64
	// The function returns nothing, and does not fail.
	_, _, _ = syscall.SyscallN(interruptTime.Addr(), uintptr(unsafe.Pointer(&count)))
	if count == 0 || count > maxInterruptTime {
		return 0, errors.New("read the interrupt time: the system did not say it")
	}
	return int64(count) * 100, nil
}
