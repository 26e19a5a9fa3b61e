//go:build !linux

package clock

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
)

// VMClock is the page through which a hypervisor tells a Linux guest about its
// clock. No other platform has one.
type VMClock struct{}

// OpenVMClock fails with an error that matches both fs.ErrNotExist and
// errors.ErrUnsupported.
func OpenVMClock(path string) (*VMClock, error) {
	return nil, fmt.Errorf("open vmclock %s: %w: %w on %s", path, fs.ErrNotExist, errors.ErrUnsupported, runtime.GOOS)
}

// Disruptions returns zero.
func (v *VMClock) Disruptions() uint64 { return 0 }
