// Package gctune keeps a server's memory near what its data needs. By default Go's collector lets the
// heap grow to twice the live heap and keeps freed pages for later. A member that has loaded or compacted
// much data and then answers reads would hold several times the memory that it needs.
//
// gctune does nothing if GOGC or GOMEMLIMIT is set.
package gctune

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// floor is the heap size below which the collector does not collect. With a smaller floor a
	// server with little data collects dozens of times a second, since each request leaves some
	// 10 KiB of garbage.
	floor = 64 << 20

	// sampleEvery is the time between two samples of the heap.
	sampleEvery = time.Second
	// decideEvery is the number of samples between two decisions to release memory. The allocations
	// in between tell whether the process is idle.
	decideEvery = 5
	// minPause is the minimum time between two releases. A release costs two collections, and pages
	// that are needed again are zeroed again.
	minPause = time.Minute
	// maxPause bounds the pause, which doubles while released memory soon becomes garbage again.
	maxPause = 16 * time.Minute
	// minRelease is the minimum to release, or a quarter of the live heap if that is more.
	minRelease = 2 << 20
	// idleShare is the share of the releasable memory that an idle process may have allocated since
	// the last decision. A busier process would soon need the pages again.
	idleShare = 1. / 8
	// largeHeap is the live heap above which garbage may grow to half the live heap instead of all
	// of it. It costs a load a tenth more processor time, and saves little on a smaller heap.
	largeHeap = 128 << 20
	// releaseStep is the memory released at a time. The runtime stops everything else meanwhile,
	// for about 0.1 s per GiB, and heartbeats must not wait that long.
	releaseStep = 16 << 20
)

// Start tunes the collector of this process until stop is called. It allocates floor bytes that are never
// touched, so the system does not provide them: the collector counts them as live heap and waits longer.
func Start() (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	ballast := make([]byte, floor)
	untouch(ballast)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { tune(ctx, cgroupLimit(os.DirFS("/")), goRuntime()) })
	return func() {
		cancel()
		wg.Wait()
		runtime.KeepAlive(ballast)
	}
}

// sample is the state of the heap in bytes, without the ballast.
type sample struct {
	live      uint64 // after the last collection
	held      uint64 // provided by the system
	allocated uint64 // since the process began
}

// releasable returns the memory that is held and not live.
func (s sample) releasable() uint64 { return s.held - min(s.live, s.held) }

// policy decides on limits and releases. It has no clock.
type policy struct {
	memory    uint64 // that the process may use; 0 if unknown
	allocated uint64 // at the last decision
	released  time.Time
	pause     time.Duration // since released
	// stuck is the memory that the last release could not give back: parts of pages between live objects.
	stuck uint64
}

// memoryLimit returns the limit for the collector: four fifths of the machine's memory, but enough above
// the live heap that collections do not take all processor time and delay heartbeats.
func (p *policy) memoryLimit(s sample) int64 {
	if p.memory == 0 {
		return math.MaxInt64
	}
	return int64(max(p.memory/10*8, s.live/10*13) + floor)
}

// percent returns the garbage that may accumulate, as a percentage of the live heap (GOGC).
func (p *policy) percent(s sample) int {
	if s.live < largeHeap {
		return 100
	}
	return 50
}

// shouldRelease reports whether to release memory now, and notes that it happens.
func (p *policy) shouldRelease(now time.Time, s sample) bool {
	allocated := s.allocated - p.allocated
	p.allocated = s.allocated
	p.stuck = min(p.stuck, s.releasable())
	gain := s.releasable() - p.stuck
	if gain < max(minRelease, s.live/4) || float64(allocated) > float64(gain)*idleShare || now.Sub(p.released) < p.pause {
		return false
	}
	if now.Sub(p.released) >= 4*p.pause {
		p.pause = 0
	}
	p.pause = min(max(2*p.pause, minPause), maxPause)
	p.released = now
	return true
}

// gcRuntime is the part of Go's runtime that tune uses.
type gcRuntime struct {
	sample     func() sample
	release    func(ctx context.Context, s sample)
	setLimit   func(bytes int64) (was int64)
	setPercent func(percent int) (was int)
}

func goRuntime() gcRuntime {
	return gcRuntime{readSample, releaseUnused, debug.SetMemoryLimit, debug.SetGCPercent}
}

// tune applies the policy until ctx ends.
func tune(ctx context.Context, memory uint64, rt gcRuntime) {
	p := policy{memory: memory}
	before := rt.setLimit(-1)
	defer rt.setLimit(before)
	defer rt.setPercent(rt.setPercent(100))
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	percent, limit := 0, int64(0)
	for i := 0; ; i++ {
		s := rt.sample()
		// Both calls stop the world, so they are made on a change only.
		if l := p.memoryLimit(s); l != limit {
			limit = l
			rt.setLimit(l)
		}
		if now := p.percent(s); now != percent {
			percent = now
			rt.setPercent(now)
		}
		if i%decideEvery == 0 && p.shouldRelease(time.Now(), s) {
			rt.release(ctx, s)
			p.stuck = rt.sample().releasable()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func readSample() sample {
	read := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(read)
	at := func(i int) uint64 { return read[i].Value.Uint64() }
	live, held := at(0), at(1)+at(2)+at(3)
	return sample{live: live - min(floor, live), held: held - min(floor, held), allocated: at(4)}
}

// releaseUnused returns unused memory to the system.
func releaseUnused(ctx context.Context, s sample) {
	// The first collection empties the pools, the second one frees what was in them.
	runtime.GC()
	runtime.GC()
	// Some free memory stays, or a collection would begin early during the release.
	release(ctx, max(minRelease, s.live/16), freeBytes, releaseBytes)
}

// release calls take until at most keep bytes are free, or ctx ends, or a step frees nothing.
func release(ctx context.Context, keep uint64, free func() uint64, take func(n uint64)) {
	for now, before := free(), uint64(0); now > keep && ctx.Err() == nil && (before == 0 || now < before); {
		take(min(now-keep, releaseStep))
		before, now = now, free()
	}
}

// freeBytes returns the heap memory that is free and not returned to the system.
func freeBytes() uint64 {
	read := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(read)
	return read[0].Value.Uint64()
}

// releaseBytes returns n bytes to the system. debug.FreeOSMemory would return everything at once; instead
// a large allocation makes the runtime return the memory above a lower memory limit.
func releaseBytes(n uint64) {
	read := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(read)
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(int64(read[0].Value.Uint64() - read[1].Value.Uint64() - n))
	runtime.KeepAlive(make([]byte, 128<<10))
	debug.SetMemoryLimit(before)
	time.Sleep(time.Millisecond) // lets other goroutines run
}
