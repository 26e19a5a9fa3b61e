package clock

import (
	"fmt"
	"runtime"
	"slices"
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
// positive. Zero means that the clock could not be read: a node that gets it
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

// Describe says what c is. If c has not measured the cost of a reading, Describe
// does, in less than a millisecond for the clocks of this package.
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

// SlowFactor is the cost of a reading, in multiples of time.Now, above which
// Info.Slow is set. A reading through the vDSO costs about as much as time.Now
// or less, a system call four to six times as much.
const SlowFactor = 3

// The median of many short batches is not moved by a preemption that hits a
// few of them.
const (
	batches   = 33
	batchSize = 32
)

// measure returns the median cost of a reading of c and whether it is slow.
func measure(c Clock) (time.Duration, bool) {
	cost, reference := costOf(c), costOf(wallClock{})
	return cost, cost > SlowFactor*reference
}

func costOf(c Clock) time.Duration {
	costs := make([]time.Duration, batches)
	for i := range costs {
		start := time.Now()
		for range batchSize {
			c.Now()
		}
		costs[i] = time.Since(start) / batchSize
	}
	slices.Sort(costs)
	return costs[batches/2]
}

// wallClock is the reference for costs. It is not a lease clock.
type wallClock struct{}

func (wallClock) Now() core.Instant { return core.Instant(time.Now().UnixNano()) }

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
	c.info = Info{Name: "runtime", Warning: runtimeWarning()}
	c.info.Cost, c.info.Slow = measure(c)
	return c
}

// Now implements Clock.
func (c *runtimeClock) Now() core.Instant {
	return firstReading + core.Instant(time.Since(c.base))
}

func runtimeWarning() string {
	if runtime.GOOS == "windows" {
		// The runtime reads InterruptTime of the shared user page. It is documented to include sleep, but
		// this is not verified, and it advances only with the system tick.
		return "the runtime's clock on Windows is up to one system tick (0.5 to 15.6 ms) late, which MaxClockSkew must cover, and is not verified to count suspended time (assumption A2)"
	}
	return "the runtime's clock does not count time in which the machine is suspended (assumption A2)"
}
