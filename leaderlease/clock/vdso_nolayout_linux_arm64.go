//go:build !go1.26 || go1.27

package clock

// layoutKnown is false because nobody has compared the offsets in
// vdso_linux_arm64.s with this Go version's runtime2.go. Once that is done,
// move the build tags.
const layoutKnown = false
