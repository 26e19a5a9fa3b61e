package clock

import (
	"errors"
	"io/fs"

	"github.com/leaderlease/go/leaderlease/core"
)

// DefaultVMClock is where Linux puts the first vmclock device. The device tells a
// guest that it was migrated or restored, but not that it was paused.
const DefaultVMClock = "/dev/vmclock0"

// Disruptable is implemented by a clock that knows when its readings lost their
// meaning.
//
// Disruptions returns a marker. When the clock has missed time that it should have
// counted, or has jumped, the marker changes to a value that it never had before, and
// not later than the readings change. The leader then gives its lease up, and a voter
// begins a restart hold. Read the clock first and the marker second, for each check: a
// disruption between the two is then seen, and one after both is as harmless as any
// pause after the check.
type Disruptable interface {
	Disruptions() uint64
}

// WithVMClock returns a clock that reads c and is a Disruptable through the
// vmclock device at path. If the device cannot be used it returns c itself and
// an error, which matches fs.ErrNotExist if there is no device; that is the
// usual case, and a caller may ignore it.
func WithVMClock(c Clock, path string) (Clock, error) {
	vm, err := OpenVMClock(path)
	if err != nil {
		return c, err
	}
	info := Describe(c)
	info.Name += "+vmclock"
	return &disruptableClock{described{info}, c, vm}, nil
}

// newSystem adds the vmclock at path, if there is one. A device that is there
// and cannot be used is worth a warning; a machine without one is not.
func newSystem(c platform, path string) Clock {
	d, err := WithVMClock(c, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.warn("the hypervisor's disruptions are not seen: " + err.Error())
	}
	return d
}

// disruptableClock is a clock of a machine with a vmclock device.
type disruptableClock struct {
	described
	clock Clock    // immutable
	vm    *VMClock // immutable
}

// Now implements Clock.
func (c *disruptableClock) Now() core.Instant { return c.clock.Now() }

// Disruptions implements Disruptable.
func (c *disruptableClock) Disruptions() uint64 { return c.vm.Disruptions() }
