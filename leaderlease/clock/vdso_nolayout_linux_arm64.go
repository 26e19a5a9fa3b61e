//go:build !go1.26 || go1.27

package clock

// layoutKnown is false because the offsets in vdso_linux_arm64.s have not been
// compared with this Go version's runtime2.go. Once that is done,
// move the build tags.
const layoutKnown = false
