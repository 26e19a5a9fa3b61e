// Package clock provides the clocks that leases are measured with.
//
// # What a lease clock must do
//
// A leader serves reads from its own state until its lease ends by its own
// clock. That is right only if the clock
//   - never goes backwards,
//   - counts the time in which the process or the machine was stopped
//     (assumption A2): a leader that sleeps through its lease must not find time
//     left on waking, and
//   - tells the time of the call. A cached or coarse reading is a lower bound of
//     now, and would stretch the lease by its age.
//
// Where it starts does not matter: readings of two clocks are never compared.
// How fast it may drift is a matter of MaxClockSkew (assumption A1).
//
// # What happens otherwise
//
// A clock that stops with the machine can serve a stale read after a suspend. A
// voter with such a clock is harmless: its promise only lasts longer. A clock
// that cannot be read gives zero, which is no lease. A clock that jumps forward
// ends leases early on a leader; on a voter it ends promises early, which is
// harmless only if the clock reports it (Disruptable).
//
// The clocks of a virtual machine need not count the time in which its hypervisor
// paused it, or in which it lay in a snapshot. A vmclock device, if the hypervisor
// offers one to a Linux guest, reports migrations and restores. System uses
// DefaultVMClock where it can be opened, and the clock is then a Disruptable. Without
// the device, a restore or a migration breaks assumption A2 unseen. The device does
// not report a pause on the same host, which breaks A2 if the hypervisor does not
// then advance the guest's clocks. The restore of a single process from a checkpoint
// on another machine is not reported either.
//
// # Which clock System returns
//
//	Platform              Clock                                  Counts suspend  Cost
//	linux/amd64           CLOCK_BOOTTIME through the vDSO        yes             about time.Now
//	linux/arm64           the same, see below                    yes             about time.Now
//	linux, other          CLOCK_BOOTTIME by system call          yes             slow
//	darwin                CLOCK_MONOTONIC_RAW through libSystem  yes             a library call
//	windows               QueryInterruptTimePrecise              yes             a library call
//	all others            the Go runtime's monotonic time        not known       about time.Now
//
// CLOCK_MONOTONIC, which Go's time package uses, stops on Linux while the
// machine is suspended. On macOS the runtime's clock stops as well; the raw
// monotonic clock does not. On Windows the runtime's clock is up to one system
// tick late. The precise interrupt time is not late, and counts sleep and
// hibernation. Before Windows 10 and Server 2016, System returns the runtime's clock.
//
// System checks the vDSO at start: its readings must lie between system calls,
// and it must not use much stack. If a check fails, System returns Boottime and
// says why in Info.Warning. The same happens on linux/arm64 in a program without
// cgo, unless this package knows the signal handling of the Go version.
//
// The clocks for Windows and macOS are compiled, but no one has suspended such
// a machine to verify them.
package clock
