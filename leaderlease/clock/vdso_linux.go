//go:build amd64 || arm64

package clock

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/leaderlease/go/leaderlease/clock/internal/vdso"
	"github.com/leaderlease/go/leaderlease/core"
)

// vdsoClock reads CLOCK_BOOTTIME without entering the kernel.
type vdsoClock struct {
	described
	fn     uintptr // immutable; the kernel's clock_gettime in this process
	origin int64   // immutable
}

// callVDSO calls fn(CLOCK_BOOTTIME) and returns the raw reading in nanoseconds,
// or readFailed. It runs on the goroutine's stack; the assembly explains why
// that is safe.
func callVDSO(fn uintptr) int64

// probeVDSO does the same once and returns how many bytes of stack fn used, or
// zero if fn failed.
func probeVDSO(fn uintptr) uintptr

// readFailed is what callVDSO returns for an error. Adding an origin neither
// makes it a valid reading nor wraps around.
const readFailed = -1 << 62

// vdsoStack is the number of bytes of stack that the assembly keeps free for fn.
// What fn used when it was probed must fit twice: the path taken then may not be
// the deepest. Current kernels use less than 100 bytes; kernels built with stack
// probes have used a page (golang/go#20427). The price is that a goroutine that
// reads the clock has a stack of 8 KiB or more.
const vdsoStack = 5120

func newVDSOClock() (*vdsoClock, error) {
	if err := vdsoUsable(); err != nil {
		return nil, err
	}
	fn, err := findVDSO()
	if err != nil {
		return nil, err
	}
	return vdsoClockOf(fn)
}

// vdsoClockOf returns a clock that calls fn, or an error if fn fails a check.
func vdsoClockOf(fn uintptr) (*vdsoClock, error) {
	if used := probeVDSO(fn); used == 0 || used > vdsoStack/2 {
		return nil, fmt.Errorf("%s used %d bytes of stack, want 1 to %d", vdsoSymbol, used, vdsoStack/2)
	}
	if err := checkReadings(readBoottime, func() int64 { return callVDSO(fn) }); err != nil {
		return nil, err
	}
	origin, err := origin()
	if err != nil {
		return nil, err
	}
	c := &vdsoClock{fn: fn, origin: origin}
	c.info = Info{Name: "vdso:boottime", CountsSuspend: true}
	c.info.Cost, c.info.Slow = measure(c)
	return c, nil
}

// Now implements Clock.
func (c *vdsoClock) Now() core.Instant {
	// A failed reading stays negative; to the caller every failure is zero.
	return max(core.Instant(callVDSO(c.fn)+c.origin), 0)
}

// findVDSO returns the address of the kernel's clock_gettime in this process.
func findVDSO() (uintptr, error) {
	image, err := vdsoImage()
	if err != nil {
		return 0, err
	}
	return findIn(image)
}

func findIn(image []byte) (uintptr, error) {
	off, err := vdso.Lookup(image, vdsoMachine, vdsoSymbol, vdsoVersion)
	if err != nil {
		return 0, err
	}
	return uintptr(unsafe.Pointer(&image[off])), nil
}

// atSysinfoEHDR marks the vDSO's address in the auxiliary vector (AT_SYSINFO_EHDR).
const atSysinfoEHDR = 33

// vdsoImage returns the vDSO as the kernel mapped it.
func vdsoImage() ([]byte, error) {
	auxv, err := unix.Auxv()
	if err != nil {
		return nil, fmt.Errorf("read auxiliary vector: %w", err)
	}
	return imageIn(auxv)
}

func imageIn(auxv [][2]uintptr) ([]byte, error) {
	for _, entry := range auxv {
		if entry[0] != atSysinfoEHDR || entry[1] == 0 {
			continue
		}
		// The kernel maps whole pages, none of them Go memory.
		base := *(**byte)(unsafe.Pointer(&entry[1]))
		size, err := vdso.Size(unsafe.Slice(base, 4096), vdsoMachine)
		if err != nil {
			return nil, err
		}
		return unsafe.Slice(base, size), nil
	}
	return nil, errors.New("the kernel has mapped none into this process")
}

// checkReadings compares fast with system calls around it. It detects a vDSO
// that serves another clock, which could cause stale reads.
func checkReadings(slow func() (int64, error), fast func() int64) error {
	for i := range 32 {
		before, err := slow()
		if err != nil {
			return err
		}
		got := fast()
		after, err := slow()
		if err != nil {
			return err
		}
		if got < before || got > after {
			return fmt.Errorf("check %d: vDSO reading %d ns is not between the system's %d and %d", i, got, before, after)
		}
	}
	return nil
}
