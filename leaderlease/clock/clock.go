package clock

import (
	"fmt"
	"sync"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// Clock is one node's lease clock.
//
// Now returns a reading that never decreases, that advances with real time also
// while the process or the machine is stopped (assumption A2), and that is the
// time of the call, not of some earlier tick. The origin is arbitrary and
// differs between clocks, so readings of two clocks must not be compared.
//
// Now is safe for concurrent use and does not panic. A valid reading is
// positive; zero means that the clock could not be read, and whoever gets it
// has no lease and makes no promise.
type Clock interface {
	Now() core.Instant
}

// Described is implemented by a clock that can say what it is. Every clock of
// this package does.
type Described interface {
	Info() Info
}

// Info says what a clock is, for logs, metrics and start-up checks.
type Info struct {
	// Name is the clock's short name, such as "vdso:boottime".
	Name string
	// CountsSuspend reports whether the clock is known to count time in which
	// the machine was suspended. If it is false, assumption A2 does not hold on
	// a machine that can be suspended.
	CountsSuspend bool
	// Cost is the median cost of one reading, measured at start on this
	// machine. It is zero if it was measured with a clock that stands still, as
	// inside a testing/synctest bubble.
	Cost time.Duration
	// Slow reports that a reading costs more than SlowFactor times time.Now.
	Slow bool
	// Warning says in a sentence what the operator should know: why a better
	// clock is not in use, or which assumption this one does not meet. It is
	// empty if there is nothing to say.
	Warning string
}

// firstReading is where clocks begin to count. It is far above zero so that
// taking a promise or a margin off a young clock's reading still leaves a valid
// Instant.
const firstReading = core.Instant(time.Hour)

// System returns the best clock of this platform; the package comment lists
// them. There is one instance per process: it is chosen, checked and measured
// by the first call. Where DefaultVMClock can be opened, the clock is also a
// Disruptable.
func System() Clock { return system() }

var system = sync.OnceValue(func() Clock { return newSystem(platformClock(), DefaultVMClock) })

// Describe says what c is. It measures the cost of a reading unless c already
// did, which takes less than a millisecond for the clocks of this package.
func Describe(c Clock) Info {
	info := Info{Name: fmt.Sprintf("%T", c), Warning: "the clock does not say whether it counts suspended time"}
	if d, ok := c.(Described); ok {
		info = d.Info()
	}
	if info.Cost == 0 {
		info.Cost, info.Slow = measure(c)
	}
	return info
}

// described is embedded by every clock of this package.
type described struct {
	info Info // immutable once the clock has been returned to a caller
}

// Info implements Described.
func (d *described) Info() Info { return d.info }

// warn adds a warning. Only a constructor may call it.
func (d *described) warn(warning string) {
	if d.info.Warning != "" {
		warning += "; " + d.info.Warning
	}
	d.info.Warning = warning
}

// platform is a clock that platformClock may return.
type platform interface {
	Clock
	Described
	warn(string)
}
