//go:build go1.26 && !go1.27

package clock

// layoutKnown says that the offsets of g.m, m.gsignal and g.stack.lo in
// vdso_linux_arm64.s have been compared with this version's runtime2.go.
const layoutKnown = true
