// Package heap says when the garbage collector runs in a member.
package heap

import (
	"os"
	"runtime"
)

// Floor is what the garbage collector takes a small heap for. Less: a server
// with little data collects dozens of times a second, since each request leaves
// some 10 KiB. More: up to as much more garbage is kept.
const Floor = 64 << 20

// Raise keeps Floor bytes allocated until the function it returns is
// called. Nobody touches them, so the system never provides them: they only make
// the collector wait, to which it is relative. An operator who has set GOGC or GOMEMLIMIT has
// thought about that already.
func Raise() (lower func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	floor := make([]byte, Floor)
	return func() { runtime.KeepAlive(floor) }
}
