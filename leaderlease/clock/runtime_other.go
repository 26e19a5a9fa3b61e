//go:build !windows

package clock

const runtimeWarning = "the runtime's clock does not count time in which the machine is suspended (assumption A2)"
