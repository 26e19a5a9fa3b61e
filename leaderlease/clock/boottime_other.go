//go:build !linux && !darwin && !windows

package clock

// Boottime returns the operating system's clock that counts suspended time.
// This platform has none that can be read without cgo, so it returns Runtime;
// Info says so.
func Boottime() Clock { return Runtime() }

func platformClock() platform { return newRuntimeClock() }
