// Package heap keeps a server's memory at what it needs. Go's collector lets the heap grow
// to twice what is alive, and keeps for later what it has once had: right for a program
// that is soon done, and several times what a node needs that has loaded or compacted much
// and then answers reads.
//
// An operator who has set GOGC or GOMEMLIMIT has thought about that already: then it does
// nothing.
package heap

import (
	"context"
	"os"
	"runtime"
	"sync"
)

// floor is what the garbage collector takes a small heap for. Less: a server
// with little data collects dozens of times a second, since each request leaves
// some 10 KiB. More: up to as much more garbage is kept, until it is given back.
const floor = 64 << 20

// Keep keeps the memory of the process in bounds until the function it returns is called.
//
// It holds floor bytes that the system does not provide: they only make the collector
// wait, to which it is relative.
func Keep() (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := make([]byte, floor)
	untouch(room)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { keep(ctx, cgroupLimit(os.DirFS("/")), process()) })
	return func() {
		cancel()
		wg.Wait()
		runtime.KeepAlive(room)
	}
}
